"""A port that is missing takes with it what needs it, and nothing else."""

import pytest

from pipelines import fields as f
from pipelines.compiler import Compiler
from pipelines.fields import Egress, Item
from pipelines.tables import EGRESS, PORT_CHECK, goto
from tests.pipelines.objects import LOCAL_NUMBER, compiled, flows_of, gone, node, pod, port

N1 = node("n1", ("10.10.1.0/24",), ("192.168.77.101/24",), datapath_id=1)
PORTS = {
    "eth1": port("n1", "eth1", 1, "aa:00:00:00:00:01"),
    "gw0": port("n1", "gw0", 2, "0a:58:0a:0a:01:01"),
    "LOCAL": port("n1", "LOCAL", LOCAL_NUMBER, "aa:00:00:00:00:01"),
}
OTHERS = (
    N1,
    node("n2", ("10.10.2.0/24",), ("192.168.77.102/24",), mac="aa:00:00:00:00:02"),
    pod("a", "n1", "10.10.1.10"),
)
# What is for a router whose MAC is not known leaves by gw0, or, when the host has sent it, by the uplink. Without the
# uplink the host sends on what would leave by it.
NEEDED = {"eth1": set[Egress](), "gw0": {Egress.GATEWAY, Egress.POD}, "LOCAL": {Egress.LOCAL}}


def ways_out(compiler: Compiler) -> set[Egress]:
    """The classes of routed packets that the switch lets out."""
    items = [item for flow in flows_of(compiler, "n1") if flow.table == EGRESS.id for item in flow.match]
    return {kind for kind in Egress if any(of_class(kind, item) for item in items)}


def of_class(kind: Egress, item: Item) -> bool:
    """Whether a condition, perhaps joined with others on the same register, asks for the class."""
    (wanted,) = EGRESS.flow(0, (f.EGRESS.eq(kind),), goto(PORT_CHECK)).match
    mask = wanted.mask or 0
    return item.field == wanted.field and (item.mask or 0) & mask == mask and item.value & mask == wanted.value


@pytest.mark.parametrize("missing", PORTS)
def test_missing_port_stops_only_what_leaves_by_it(missing: str) -> None:
    """Without gw0, for one, a node must still be reached by other nodes: it could not be repaired otherwise."""
    all_of_them = [*OTHERS, *PORTS.values()]
    whole = compiled(*all_of_them)
    expected = {Egress.UPLINK, Egress.GATEWAY, Egress.POD, Egress.LOCAL, Egress.ROUTER}
    assert ways_out(whole) == expected
    whole.run([gone(PORTS[missing])])
    assert ways_out(whole) == expected - NEEDED[missing]
    whole.run([PORTS[missing]])
    assert ways_out(whole) == expected
