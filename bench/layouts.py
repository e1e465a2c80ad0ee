"""What the switches of a lab hold while one path is measured, and how they come to hold it.

There is no controller: the product's own compiler says the flows, for ports as they are, and `ovs-ofctl` writes them.
So paths that need other settings can take turns on the same switches within a tenth of a second.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from controller.settings import SwitchSettings
from k8s_bridge import manifests
from lab.cluster import Lab
from lab.netns import LabError
from lab.switch import BRIDGE, GATEWAY, TUNNEL
from pipelines.actions import LOCAL_PORT
from pipelines.addresses import parse_ip, parse_mac
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.model import Change, Kind, Neighbor, Port, Settings, neighbor_key, port_key
from pipelines.text import flow_text, group_text

TUNNEL_MAC = "02:00:00:00:00:03"  # of tun0, which no flow says

Lines = dict[str, list[str]]  # by node: lines of a bundle file


class Layout(Struct, frozen=True):
    """`flows`: of one node's switch, in the mean."""

    name: str
    lines: Lines

    @property
    def flows(self) -> float:
        return sum(len(lines) for lines in self.lines.values()) / len(self.lines)


def prepare(lab: Lab) -> None:
    """Meters, which no bundle can carry."""
    for node in lab.plan.nodes:
        for number, rate, burst in SwitchSettings().meters:
            band = f"type=drop,rate={rate},burst_size={burst}"
            lab.ofctl(node.name, "add-meter", BRIDGE, f"meter={number},pktps,burst,bands={band}")


def write(lab: Lab, layout: Layout) -> None:
    """Exactly this is in the switches afterwards, and no connection or decision is left of what was there before."""
    for node, lines in layout.lines.items():
        text = "".join(f"{line}\n" for line in ["flow delete", "group delete group_id=all", *lines])
        lab.ofctl(node, "bundle", BRIDGE, "-", stdin=text)
        lab.flush_conntrack(node)
        lab.appctl(node, "revalidator/purge")


def compiled(lab: Lab, directory: Path, name: str, settings: Settings) -> Layout:
    """What the product gives every node, with all ports known and every next hop found. LabError when it complains."""
    compiler = Compiler()
    values = [Change(kind, key, value) for (kind, key), value in manifests.read(directory).values.items()]
    compiler.run([*values, Change(Kind.SETTINGS, "", settings), *_ports(lab), *_next_hops(lab)])
    if problems := compiler.problems():
        raise LabError(f"{name}: {problems[0]}")
    members = compiler.facts.peek(Derived.MEMBER).values()
    return Layout(name, {member.node: _lines(compiler, member.scopes) for member in members})


def _lines(compiler: Compiler, scopes: Iterable[object]) -> list[str]:
    wanted = set(scopes)
    units = [unit for key, unit in compiler.units.items() if key.scope in wanted]
    groups = [f"group add {group_text(group)}" for unit in units for group in unit.groups]
    return groups + [f"flow add {flow_text(flow)}" for unit in units for flow in unit.flows]


def _ports(lab: Lab) -> Iterable[Change]:
    for node in lab.plan.nodes:
        macs = {node.uplink: node.mac, GATEWAY: node.gateway_mac, TUNNEL: TUNNEL_MAC}
        macs |= {pod.port: pod.station.mac for pod in lab.plan.pods if pod.node == node.name}
        yield Change(Kind.PORT, port_key(node.name, "LOCAL"), Port(LOCAL_PORT, parse_mac(node.mac)))
        for name, mac in macs.items():
            port = Port(lab.port_number(node.name, name), parse_mac(mac))
            yield Change(Kind.PORT, port_key(node.name, name), port)


def _next_hops(lab: Lab) -> Iterable[Change]:
    for node in lab.plan.nodes:
        router, _ = lab.router_macs(node.segment)
        for gateway in node.gateways:
            yield Change(Kind.NEIGHBOR, neighbor_key(node.name, parse_ip(gateway)), Neighbor(parse_mac(router)))


def cross_connect(lab: Lab, client: str, server: str, *, tracked: bool = False) -> Layout:
    """The floor: two pods on two nodes, and no flow but those that set MACs, count the hop and send. IPv4.

    `tracked`: they also pass conntrack once on each node, as everything does that may be part of a service connection.
    """
    ends = [lab.pod(client), lab.pod(server)]
    lines: Lines = {}
    for mine, other in (ends, ends[::-1]):
        node, peer = lab.node(mine.node), lab.node(other.node)
        port, uplink, gateway = (lab.port_number(node.name, name) for name in (mine.port, node.uplink, GATEWAY))
        here, there = (_address(pod.station.addresses) for pod in (mine, other))
        flows = [(f"arp,in_port={port}", f"output:{gateway}"), (f"arp,in_port={gateway}", f"output:{port}")]
        for match, hop in (
            (f"ip,in_port={port},nw_dst={there}", _hop(node.mac, peer.mac, uplink)),
            (f"ip,in_port={uplink},nw_dst={here}", _hop(node.gateway_mac, mine.station.mac, port)),
        ):
            if tracked:
                flows += [
                    (match, "ct(zone=1,nat,table=1)"),
                    (f"table=1,{match},ct_state=+trk+new", f"ct(commit,zone=1),{hop}"),
                    (f"table=1,{match},ct_state=+trk+est", hop),
                ]
            else:
                flows.append((match, hop))
        lines[node.name] = [f"flow add priority=1,{match} actions={actions}" for match, actions in flows]
    return Layout(f"static cross-connect, {tracked=}", lines)


def _hop(source: str, destination: str, port: int) -> str:
    return f"set_field:{source}->eth_src,set_field:{destination}->eth_dst,dec_ttl,output:{port}"


def _address(addresses: Iterable[str]) -> str:
    return next(text.partition("/")[0] for text in addresses if ":" not in text)
