"""Packets to try on a switch: by every kind of port, from and to every class of address, of every kind.

Fresh ones, and what follows them: repetitions, answers to what came out, errors about it.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from pipelines import fields as f
from pipelines.addresses import Ip, link_local, parse_ip, parse_mac, pod_mac
from pipelines.fields import Field
from pipelines.interpreter import ICMP_CODE, ICMP_ID, Packet
from tests.ovs import world
from tests.simulation.cluster import Cluster

OTHER_MAC, BROADCAST = 0xEE0000000077, 0xFFFFFFFFFFFF
KINDS = ("syn", "syn", "syn", "udp", "udp", "udp", "echo", "echo", "ack", "fin", "rst", "sctp", "other", "neighbour")
PORTS = (80, 8080, 5353, 22, 61500)


class Talk:
    """Who may send what by the ports of one node."""

    def __init__(self, cluster: Cluster, node: str, random: Random) -> None:
        self._random = random
        plan = cluster.plan
        self._node = plan.node(node)
        self._numbers = cluster.tables[node].ports
        self._pods = [pod for pod in plan.pods if pod.node == node]
        self.mac, self.gateway_mac = parse_mac(self._node.mac), parse_mac(self._node.gateway_mac)
        self._stations = [parse_mac(peer.mac) for peer in plan.nodes if peer != self._node]
        self._stations += [parse_mac(mac) for segment in plan.segments for mac in segment.router_macs]
        self._stations.append(parse_mac(plan.outside.mac))
        self._addresses = {family: list(_addresses(node, family)) for family in (4, 6)}

    def fresh(self) -> Packet:
        family = self._random.choice((4, 6))
        port = self._random.choice(("pod", "pod", "uplink", "uplink", "LOCAL", "LOCAL", "gw0", "tun0"))
        if port == "pod":
            port, frame, source = self._from_pod(family)
        elif port == "uplink":
            port, source = self._node.uplink, self._random.choice(self._addresses[family])
            mac = self._random.choice((self.mac,) * 8 + (OTHER_MAC, BROADCAST))
            frame = {f.ETH_SRC: self._random.choice(self._stations), f.ETH_DST: mac}
        else:
            source = self._random.choice(self._own(family) * 3 + self._addresses[family])
            mac = self.gateway_mac if port == "gw0" else self.mac
            to = self._random.choice((mac,) * 6 + (self._random.choice(self._stations), BROADCAST))
            frame = {f.ETH_SRC: mac, f.ETH_DST: to}
        packet = self._message(family, source, frame)
        if self._random.random() < 0.03:
            packet = packet.having({f.VLAN_TCI: 0x1000 | 7})
        return packet.having({f.IN_PORT: self._numbers[port]})

    def _from_pod(self, family: int) -> tuple[str, dict[Field, int], Ip]:
        pod = self._random.choice(self._pods)
        own = [parse_ip(text.partition("/")[0]) for text in pod.station.addresses]
        mine = [ip for ip in own if ip.family == family] or [self._addresses[family][0]]
        source = self._random.choice((*mine, *mine, *mine, *mine, self._random.choice(self._addresses[family])))
        mac = self._random.choice((self.gateway_mac,) * 6 + (pod_mac(tuple(own)), OTHER_MAC, BROADCAST))
        sender = self._random.choice((parse_mac(pod.station.mac),) * 12 + (OTHER_MAC,))
        return pod.port, {f.ETH_SRC: sender, f.ETH_DST: mac}, source

    def _own(self, family: int) -> list[Ip]:
        texts = [text.partition("/")[0] for text in (*self._node.addresses, *self._node.gateway_addresses)]
        return [ip for ip in map(parse_ip, texts) if ip.family == family]

    def _message(self, family: int, source: Ip, frame: dict[Field, int]) -> Packet:
        kind = self._random.choice(KINDS)
        target = self._random.choice(self._addresses[family])
        if kind == "neighbour":
            return self._neighbour(family, source, target, frame)
        if kind == "other":
            return Packet.of(frame | {f.ETH_TYPE: self._random.choice((0x88CC, 0x0842))}, 60)
        head = frame | {
            f.ETH_TYPE: 0x0800 if family == 4 else 0x86DD,
            f.IP_TTL: self._random.choice((64, 64, 64, 2, 1)),
        }
        head |= {f.IP_SRC[family]: source.value, f.IP_DST[family]: target.value}
        upper = self._upper(family, kind)
        # Without data every TCP segment is in its window, whatever was sent before.
        length = 0 if upper[f.IP_PROTO] == f.TCP else self._random.choice((100, 100, 100, 1514, 1600))
        return Packet.of(head | upper, length)

    def _upper(self, family: int, kind: str) -> dict[Any, int]:
        ports = self._random.choice((40000, 40001, 80, 61500)), self._random.choice(PORTS)
        flags = {"syn": 0x02, "ack": 0x10, "fin": 0x11, "rst": 0x04}
        if kind in flags:
            return {f.IP_PROTO: f.TCP, f.TCP_SRC: ports[0], f.TCP_DST: ports[1], f.TCP_FLAGS: flags[kind]}
        if kind == "udp":
            return {f.IP_PROTO: f.UDP, f.UDP_SRC: ports[0], f.UDP_DST: self._random.choice((*PORTS, 6081, 67))}
        if kind == "sctp":
            return {f.IP_PROTO: f.SCTP, f.SCTP_SRC: ports[0], f.SCTP_DST: ports[1]}
        number = self._random.choice((1, 2))
        if family == 4:
            return {f.IP_PROTO: f.ICMP, f.ICMP_TYPE: self._random.choice((8, 8, 0)), ICMP_ID: number}
        return {f.IP_PROTO: f.ICMP6, f.ICMP6_TYPE: self._random.choice((128, 128, 129)), ICMP_ID: number}

    def _neighbour(self, family: int, source: Ip, target: Ip, frame: dict[Field, int]) -> Packet:
        mac = frame[f.ETH_SRC]
        if family == 4:
            operation = self._random.choice((1, 1, 2))
            said = {f.ARP_OP: operation, f.ARP_SHA: mac, f.ARP_SPA: self._random.choice((source.value,) * 4 + (0,))}
            return Packet.of(frame | said | {f.ETH_TYPE: 0x0806, f.ARP_TPA: target.value}, 42)
        kind = self._random.choice((135, 135, 136, 133, 134))
        head = {f.ETH_TYPE: 0x86DD, f.IP_TTL: 255, f.IP_PROTO: f.ICMP6, f.ICMP6_TYPE: kind}
        ends = {f.IP6_SRC: self._random.choice((source, source, link_local(mac), Ip(6, 0))).value}
        ends[f.IP6_DST] = target.value
        if kind in (135, 136):
            ends[f.ND_TARGET] = self._random.choice((target, source)).value
        # Of router messages Open vSwitch does not look at the options.
        option = self._random.choice((mac, mac, mac, 0, OTHER_MAC)) if kind in (135, 136) else 0
        return Packet.of(frame | head | ends | ({f.ND_TLL if kind == 136 else f.ND_SLL: option} if option else {}), 86)

    def answer(self, port: int, sent: Packet) -> Packet | None:
        """What a station would say to a packet that left by `port`: an answer, or an error about it."""
        if not sent.family or sent[f.ETH_DST] & f.MULTICAST:
            return None
        family = sent.family
        back = {f.IN_PORT: port, f.ETH_SRC: sent[f.ETH_DST], f.ETH_DST: sent[f.ETH_SRC], f.IP_TTL: 64}
        back |= {f.IP_SRC[family]: sent[f.IP_DST[family]], f.IP_DST[family]: sent[f.IP_SRC[family]]}
        if self._random.random() < 0.2 and sent[f.IP_PROTO] in (f.TCP, f.UDP):
            return self._error(sent, back)
        packet = sent.having(back)
        match packet[f.IP_PROTO]:
            case f.TCP:
                flags = self._random.choice((0x12, 0x12, 0x10, 0x11, 0x04)) if sent[f.TCP_FLAGS] & 2 else 0x10
                return packet.having({f.TCP_SRC: sent[f.TCP_DST], f.TCP_DST: sent[f.TCP_SRC], f.TCP_FLAGS: flags})
            case f.UDP:
                return packet.having({f.UDP_SRC: sent[f.UDP_DST], f.UDP_DST: sent[f.UDP_SRC]})
            case f.ICMP if packet.carried is None:
                return packet.having({f.ICMP_TYPE: {8: 0, 0: 8}[sent[f.ICMP_TYPE]]})
            case f.ICMP6 if packet.carried is None and sent[f.ICMP6_TYPE] in (128, 129):
                return packet.having({f.ICMP6_TYPE: {128: 129, 129: 128}[sent[f.ICMP6_TYPE]]})
        return None

    def _error(self, sent: Packet, back: dict[Field, int]) -> Packet:
        kind: dict[Field, int] = {f.IP_PROTO: f.ICMP, f.ICMP_TYPE: 3, ICMP_CODE: self._random.choice((3, 4))}
        if sent.family == 6:
            kind = {f.IP_PROTO: f.ICMP6, f.ICMP6_TYPE: 1, f.ICMP6_CODE: 4}
        if self._random.random() < 0.3:  # by somebody on the way
            back = back | {f.IP_SRC[sent.family]: self._random.choice(self._addresses[sent.family]).value}
        head = {f.ETH_TYPE: sent[f.ETH_TYPE], f.VLAN_TCI: sent[f.VLAN_TCI]}
        quoted = sent.having({f.ETH_SRC: 0, f.ETH_DST: 0, f.VLAN_TCI: 0})
        return Packet.of(head | back | kind, carried=quoted)


def _addresses(node: str, family: int) -> Iterator[Ip]:
    """Of every class, those that are more interesting more than once."""
    for place in world.PLACES.values():
        if family in place.addresses:
            yield parse_ip(place.addresses[family])
    for service in world.SERVICES.values():
        if family in service.addresses:
            yield parse_ip(service.addresses[family])
            yield parse_ip(service.addresses[family])
    yield parse_ip(world.VIRTUAL[family])
    for number in ("n1", "n2"):
        for address in (world.gateway(number, family), world.snat(number, family), world.snat(node, family)):
            yield parse_ip(address)
    unused = ("10.10.1.77", "10.96.0.99", "8.8.8.8", "224.0.0.251")
    unused6 = ("fd00:10:1::77", "fd00:96::99", "2001:db8::8", "ff02::fb", "fe80::1")
    yield from map(parse_ip, unused if family == 4 else unused6)
