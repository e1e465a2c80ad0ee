"""A host's network stack, as far as the lab uses it: neighbours, routes, forwarding, reverse path filter, masquerade.

Stations, routers and the host side of nodes are all such kernels; lab/script.py says how the real ones are set.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from lab.manifests import inside
from pipelines import fields as f
from pipelines.addresses import Cidr, Interface, Ip, link_local, parse_cidr, parse_interface, parse_ip
from pipelines.fields import Field
from pipelines.interpreter import ICMP_CODE, ICMP_ID, Packet
from tests.simulation.sockets import PORT_FIELDS, Sockets
from tests.simulation.wires import Take

BROADCAST = 0xFFFFFFFFFFFF
HOPS = 64
ALL = {4: Cidr(4, 0, 0), 6: Cidr(6, 0, 0)}


class Device(NamedTuple):
    name: str
    mac: int
    addresses: tuple[Interface, ...]
    send: Take

    @property
    def own(self) -> tuple[Ip, ...]:
        return *(at.ip for at in self.addresses), link_local(self.mac)


class Route(NamedTuple):
    to: Cidr
    via: Ip | None
    device: str


class Kernel:
    """`reverse_path`: strict rp_filter for IPv4. `masqueraded`: a node's pods; `cluster`: who sees their addresses."""

    def __init__(self, name: str, *, forwards: bool = False, reverse_path: bool = False) -> None:
        self.name = name
        self.sockets = Sockets(name)
        self.masqueraded: tuple[Cidr, ...] = ()
        self.cluster: tuple[Cidr, ...] = ()
        self._forwards, self._reverse_path = forwards, reverse_path
        self._devices: dict[str, Device] = {}
        self._routes: list[Route] = []
        self._neighbours: dict[tuple[str, Ip], int] = {}
        self._waiting: dict[tuple[str, Ip], list[Packet]] = {}
        self._hidden: dict[tuple[int, ...], tuple[int, int]] = {}  # a reply's ends → a pod's address and port

    # --- setting up -------------------------------------------------------------------------------------------

    def add_device(self, name: str, mac: int, addresses: Iterable[str], send: Take) -> None:
        held = tuple(parse_interface(text) for text in addresses)
        self._devices[name] = Device(name, mac, held, send)
        self._routes += [Route(at.subnet, None, name) for at in held if at.subnet]

    def add_route(self, to: str, via: str, device: str) -> None:
        """`to`: a prefix, or "default"."""
        hop = parse_ip(via)
        self._routes.append(Route(ALL[hop.family] if to == "default" else parse_cidr(to), hop, device))

    def is_own(self, ip: Ip) -> bool:
        return any(ip in device.own for device in self._devices.values())

    def mac(self, device: str) -> int:
        return self._devices[device].mac

    def forget(self) -> None:
        """Connections; neighbours stay known."""
        self.sockets.forget()
        self._hidden.clear()

    # --- sending ----------------------------------------------------------------------------------------------

    def route(self, to: Ip) -> Route | None:
        return max((one for one in self._routes if inside(to, one.to)), key=lambda one: one.to.length, default=None)

    def source_for(self, to: Ip) -> Ip:
        """The address that the kernel chooses for a packet of its own."""
        route = self.route(to)
        assert route is not None, f"{self.name} has no route to {to}"
        hop = route.via or to
        held = [at for at in self._devices[route.device].addresses if at.ip.family == to.family]
        return next((at.ip for at in held if at.subnet and inside(hop, at.subnet)), held[0].ip)

    def send(self, packet: Packet) -> None:
        """A packet of its own, which has its addresses."""
        self._out(packet.having({f.IP_TTL: HOPS}))

    def _out(self, packet: Packet) -> None:
        to = Ip(packet.family, packet[f.IP_DST[packet.family]])
        route = self.route(to)
        if route is not None:
            self._to_neighbour(self._devices[route.device], route.via or to, packet)

    def _to_neighbour(self, device: Device, hop: Ip, packet: Packet) -> None:
        mac = self._neighbours.get((device.name, hop))
        if mac is not None:
            device.send(packet.having({f.ETH_SRC: device.mac, f.ETH_DST: mac}))
            return
        waiting = self._waiting.setdefault((device.name, hop), [])
        waiting.append(packet)
        if len(waiting) == 1:
            device.send(self._question(device, hop, Ip(packet.family, packet[f.IP_SRC[packet.family]])))

    def _question(self, device: Device, hop: Ip, source: Ip) -> Packet:
        if hop.family == 4:
            sender = source if self.is_own(source) else device.addresses[0].ip
            arp = {f.ARP_OP: 1, f.ARP_SHA: device.mac, f.ARP_SPA: sender.value, f.ARP_TPA: hop.value}
            return Packet.of({f.ETH_SRC: device.mac, f.ETH_DST: BROADCAST, f.ETH_TYPE: 0x0806, **arp}, 42)
        group = 0xFF02 << 112 | 0x1FF << 24 | hop.value & 0xFFFFFF
        sender = source if source in device.own else link_local(device.mac)
        said = {f.IP6_SRC: sender.value, f.IP6_DST: group, f.ND_TARGET: hop.value, f.ND_SLL: device.mac}
        frame = {f.ETH_SRC: device.mac, f.ETH_DST: 0x3333 << 32 | group & 0xFFFFFFFF}
        return Packet.of({**frame, **_neighbour_message(135), **said}, 86)

    # --- receiving --------------------------------------------------------------------------------------------

    def taker(self, device: str) -> Take:
        return lambda packet: self._receive(self._devices[device], packet)

    def _receive(self, device: Device, packet: Packet) -> None:
        if packet[f.ETH_DST] != device.mac and not packet[f.ETH_DST] & f.MULTICAST:
            return
        if packet[f.ETH_TYPE] == 0x0806:
            self._arp(device, packet)
        elif packet[f.IP_PROTO] == f.ICMP6 and packet[f.ICMP6_TYPE] in (135, 136):
            self._neighbour(device, packet)
        elif packet.family and not packet[f.ETH_DST] & f.MULTICAST:
            self._packet(device, packet)

    def _arp(self, device: Device, packet: Packet) -> None:
        asked, sender = Ip(4, packet[f.ARP_TPA]), Ip(4, packet[f.ARP_SPA])
        if not self.is_own(asked) or not self._plausible(device, sender):
            return
        self._found(device, sender, packet[f.ARP_SHA])
        if packet[f.ARP_OP] == 1:
            said = {f.ARP_OP: 2, f.ARP_SHA: device.mac, f.ARP_SPA: asked.value}
            said |= {f.ARP_THA: packet[f.ARP_SHA], f.ARP_TPA: sender.value}
            frame = {f.ETH_SRC: device.mac, f.ETH_DST: packet[f.ETH_SRC], f.ETH_TYPE: 0x0806}
            device.send(Packet.of({**frame, **said}, 42))

    def _neighbour(self, device: Device, packet: Packet) -> None:
        target, sender = Ip(6, packet[f.ND_TARGET]), Ip(6, packet[f.IP6_SRC])
        if packet[f.ICMP6_TYPE] == 136:
            self._found(device, target, packet[f.ND_TLL])
        elif target in device.own:
            self._found(device, sender, packet[f.ND_SLL])
            said = {f.IP6_SRC: target.value, f.IP6_DST: sender.value, f.ND_TARGET: target.value}
            said |= {f.ND_TLL: device.mac, f.ND_RESERVED: 0x60000000}
            frame = {f.ETH_SRC: device.mac, f.ETH_DST: packet[f.ETH_SRC]}
            device.send(Packet.of({**frame, **_neighbour_message(136), **said}, 86))

    def _found(self, device: Device, ip: Ip, mac: int) -> None:
        self._neighbours[device.name, ip] = mac
        for packet in self._waiting.pop((device.name, ip), []):
            self._to_neighbour(device, ip, packet)

    def _plausible(self, device: Device, source: Ip) -> bool:
        """Strict reverse path filter: answers would leave by the same device."""
        if not self._reverse_path or source.family == 6:
            return True
        route = self.route(source)
        return route is not None and route.device == device.name and not self.is_own(source)

    def _packet(self, device: Device, packet: Packet) -> None:
        family = packet.family
        if not self._plausible(device, Ip(family, packet[f.IP_SRC[family]])):
            return
        packet = self._shown(packet)
        to = Ip(family, packet[f.IP_DST[family]])
        if self.is_own(to):
            for answer in self.sockets.receive(packet):
                self.send(answer)
        elif self._forwards:
            self._forward(packet)

    def _forward(self, packet: Packet) -> None:
        if packet[f.IP_TTL] <= 1:
            return
        packet = packet.having({f.IP_TTL: packet[f.IP_TTL] - 1})
        family = packet.family
        source, to = Ip(family, packet[f.IP_SRC[family]]), Ip(family, packet[f.IP_DST[family]])
        if any(inside(source, pods) for pods in self.masqueraded) and not any(inside(to, one) for one in self.cluster):
            packet = self._hide(packet, source, self.source_for(to))
        self._out(packet)

    # --- masquerade -------------------------------------------------------------------------------------------

    def _hide(self, packet: Packet, source: Ip, own: Ip) -> Packet:
        mine, theirs = _ports(packet)
        peer = packet[f.IP_DST[own.family]]
        self._hidden[own.family, packet[f.IP_PROTO], peer, theirs, mine] = source.value, mine
        return packet.having({f.IP_SRC[own.family]: own.value})

    def _shown(self, packet: Packet) -> Packet:
        """A reply to a pod that was hidden, or an error about what it sent, with its address again."""
        family, quoted = packet.family, packet.carried
        if quoted is not None:
            mine, theirs = _ports(quoted)
            key = (family, quoted[f.IP_PROTO], quoted[f.IP_DST[family]], theirs, mine)
        else:
            theirs, mine = _ports(packet)
            key = (family, packet[f.IP_PROTO], packet[f.IP_SRC[family]], theirs, mine)
        found = self._hidden.get(key)
        if found is None:
            return packet
        packet = packet.having({f.IP_DST[family]: found[0]})
        if quoted is not None:
            packet = msgspec.structs.replace(packet, carried=quoted.having({f.IP_SRC[family]: found[0]}))
        return packet


def _neighbour_message(kind: int) -> Mapping[Field, int]:
    return {f.ETH_TYPE: 0x86DD, f.IP_TTL: 255, f.IP_PROTO: f.ICMP6, f.ICMP6_TYPE: kind}


def _ports(packet: Packet) -> tuple[int, int]:
    """Source and destination port; of echo messages their identifier stands for both."""
    fields = PORT_FIELDS.get(packet[f.IP_PROTO])
    return (packet[ICMP_ID],) * 2 if fields is None else (packet[fields[0]], packet[fields[1]])


__all__ = ["ICMP_CODE", "Kernel"]
