"""Every frame on its way: whether it may be where it is.

An address of a service is seen by whoever asks it and by the node that translates it: no switch sends it on, neither
to a segment nor through a tunnel nor to the host as the default gateway. Nor does a virtual address leave its node.
"""

from collections.abc import Sequence

from pipelines import fields as f
from pipelines.addresses import Ip, parse_cidr, parse_ip
from pipelines.interpreter import Packet
from pipelines.interpreter.packet import place
from pipelines.interpreter.story import packet_text
from tests.ovs.states import State
from tests.ovs.world import NODES, OUTSIDE, VIRTUAL
from tests.services.world import ROUTED
from tests.simulation.network import TUNNEL_PORTS, Network
from tests.simulation.verdict import fit

MOST_FRAMES = 100  # on all cables, for one question with its answer
_JUDGED = (f.ETH_SRC, f.ETH_TYPE, f.VLAN_TCI, *f.IP_SRC.values(), *f.IP_DST.values(), f.IP_TTL, f.IP_PROTO, f.UDP_DST)
_MASK = sum(place(field).mask for field in _JUDGED)
_SERVICES = [parse_cidr(prefix) for prefix in ROUTED]
_VIRTUAL = [parse_ip(text) for text in VIRTUAL.values()]
_OUTSIDE = {parse_ip(text) for client in OUTSIDE.values() for text in client.addresses.values()}
_OWN = {name: {parse_ip(text) for text in node.addresses.values()} for name, node in NODES.items()}


class Watch:
    """Frames that are alike are judged once."""

    def __init__(self, network: Network, state: State) -> None:
        self._network, self._state = network, state
        self._judged: dict[tuple[str, int, int], bool] = {}

    def stray(self, frames: Sequence[tuple[str, Packet]]) -> str:
        """A frame of one question and its answer that should not be, or that there are too many; "" if all is well."""
        for cable, packet in frames:
            inner = packet.carried.bits & _MASK if packet.carried else 0
            key = cable, packet.bits & _MASK, inner
            if key not in self._judged:
                self._judged[key] = self._may(cable, packet)
            if not self._judged[key]:
                return f"{cable}: {packet_text(packet)}"
        return f"{len(frames)} frames" if len(frames) > MOST_FRAMES else ""

    def _may(self, cable: str, packet: Packet) -> bool:
        sender, _, receiver = cable.partition("→")
        node = sender.removesuffix(":")
        on_segment = receiver.startswith(("seg", "far"))
        if on_segment and not fit(cable, packet, self._network, self._state):
            return False
        if node not in NODES or not receiver or not packet.family:
            return True  # no switch has sent it
        source, to = _ends(packet)
        if _of_service(to) or (to in _VIRTUAL and (on_segment or receiver == "gw0")):
            return False
        if source in _VIRTUAL and (on_segment or receiver == "gw0"):
            return False
        if not _of_service(source):
            return self._inner_may(packet)
        return {"LOCAL": to in _OWN[node], "gw0": False}.get(receiver, not on_segment or to in _OUTSIDE)

    def _inner_may(self, packet: Packet) -> bool:
        """What is in a tunnel."""
        port = TUNNEL_PORTS[self._state.tunnel]
        if packet.carried is None or packet[f.IP_PROTO] != f.UDP or packet[f.UDP_DST] != port:
            return True
        return not any(_of_service(ip) or ip in _VIRTUAL for ip in _ends(packet.carried))


def _ends(packet: Packet) -> tuple[Ip, Ip]:
    family = packet.family
    return Ip(family, packet[f.IP_SRC[family]]), Ip(family, packet[f.IP_DST[family]])


def _of_service(ip: Ip) -> bool:
    return any(cidr.__contains__(ip) for cidr in _SERVICES)
