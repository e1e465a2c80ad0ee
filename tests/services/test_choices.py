"""Groups of services as they are compiled: no switch needed."""

from collections import Counter

from lab.plan import Options
from tests.ovs import world as cluster
from tests.services.hints import hinted, zoned
from tests.services.world import Service, ready
from tests.simulation.cluster import compiled, settings_of


def test_every_choice_that_a_switch_may_make_has_a_group_of_its_own() -> None:
    """A node in a zone, with hints for it and for the zone, a Local policy, and the choice of everybody else."""
    service = Service("case", 90, ready("b", "e"), external_local=True)
    both = {**zoned("z1"), "forNodes": [{"name": "n1"}]}
    nodes = [cluster.node_object(name) for name in ("n1", "n2")]
    for node in nodes:
        node["metadata"]["labels"] = {"topology.kubernetes.io/zone": "z1"}
    pods = [cluster.pod_object(name) for name in ("b", "e")]
    objects = [*nodes, *pods, service.objects()[0], *hinted(service, b=both, e=both)]
    tables = compiled(objects, settings_of({}), Options()).tables
    for name in ("n1", "n2"):
        count = Counter(group.id for group in tables[name].groups)
        assert max(count.values()) == 1, name
    assert len(tables["n1"].groups) == 4 * 4  # two protocols in two families
