"""What REST and the command answer about pods: where each is, its port, and whether its packets may be too large."""

from collections.abc import Iterable, Iterator

from apps.answers import Pause, Row, by_object, no_pause
from apps.node_rows import settings_of
from pipelines.addresses import pod_port_name
from pipelines.derived import Derived
from pipelines.model import Kind, Pod, Port, Problem, port_key
from pipelines.mtu import mtu_of_pods
from pipelines.view import Facts


def pods(
    facts: Facts, found: Iterable[Problem], node: str | None = None, mtu: str | None = None, pause: Pause = no_pause
) -> Iterator[Row]:
    """Pods that have an address of their own. `node`: only on this one; `mtu`: "wrong" or "right", only such."""
    wrong = by_object(found, Kind.POD)
    for key, value in list(facts.peek(Kind.POD).items()):
        pause()
        if not value.ips or (node is not None and value.node != node):
            continue
        row = pod(key, value, facts, wrong.get(key, []))
        if mtu is None or row["mtu_wrong"] is (mtu == "wrong"):
            yield row


def pod(key: str, value: Pod, facts: Facts, wrong: list[Row]) -> Row:
    """`mtu` is what the pod's annotation says, null when it says nothing: then nobody knows whether it is wrong."""
    name = pod_port_name(value.namespace, value.name)
    port: Port | None = facts.peek(Kind.PORT).get(port_key(value.node, name))
    most = _most(value, facts)
    return {
        "name": key,
        "node": value.node,
        "addresses": [str(ip) for ip in value.ips],
        "port": name,
        "port_number": None if port is None else port.number,
        "mtu": value.mtu,
        "mtu_most": most,
        "mtu_wrong": bool(most and value.mtu and value.mtu > most),
        "problems": wrong,
    }


def _most(value: Pod, facts: Facts) -> int | None:
    """The largest MTU that fits; None when the pod's node is not known."""
    node, network = facts.peek(Kind.NODE).get(value.node), facts.peek(Derived.NODE_NETWORK).get(value.node)
    return None if node is None else mtu_of_pods(node, network.addresses if network else (), settings_of(facts))
