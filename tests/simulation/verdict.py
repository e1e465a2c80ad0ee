"""What is wrong with an answer, or with a frame on a segment."""

from functools import lru_cache

from pipelines import fields as f
from pipelines.addresses import Ip, parse_cidr
from pipelines.interpreter import Packet
from tests.ovs import oracle
from tests.ovs.states import State
from tests.simulation.network import Network
from tests.simulation.sockets import Question

FIRST_RESERVED = 61440
_cidr = lru_cache(parse_cidr)


def wrong(question: Question, names: frozenset[str], seen: dict[str, oracle.Seen]) -> str:
    """What is not as it should be; "" when nothing."""
    if not names:
        return "" if question.refused and not question.answers else f"not refused: {question}"
    if len(question.answers) != 1 or question.refused:
        return f"should be answered once by {', '.join(sorted(names))}: {question}"
    said = question.answers[0]
    if said.name not in names:
        return f"answered by {said.name}, not by {', '.join(sorted(names))}"
    due = seen[said.name]
    reserved = said.port >= FIRST_RESERVED
    if said.address != due.address or (due.reserved is not None and reserved is not due.reserved):
        return f"{said.name} saw {said.address} port {said.port}, not {due}"
    return ""


def told(problems: list[str], of: int) -> str:
    return f"{len(problems)} of {of}:\n" + "\n".join(problems[:40])


def fit(name: str, packet: Packet, network: Network, state: State) -> bool:
    """Whether a frame may be on a segment: its sender's own, once routed at least, nothing naked in `encap`."""
    sender, _, segment = name.partition("→")
    own = network.mac_of(sender, segment)
    if packet[f.ETH_SRC] != own or packet[f.VLAN_TCI] or (packet.family and not packet[f.IP_TTL]):
        return False
    inside = [_cidr(text) for node in network.plan.nodes for text in node.pod_cidrs]
    pods = [any(cidr.__contains__(ip) for cidr in inside) for ip in _ends(packet)]
    return not (pods and all(pods) and state.mode == "encap")


def _ends(packet: Packet) -> list[Ip]:
    family = packet.family
    return [Ip(family, packet[field[family]]) for field in (f.IP_SRC, f.IP_DST)] if family else []
