"""Model values as short as tests want them, and changes made of them."""

from collections.abc import Iterable
from typing import Any

from pipelines.addresses import Interface, Ip, parse_cidr, parse_interface, parse_ip, parse_mac, pod_port_name
from pipelines.compiler import Compiler
from pipelines.flow import Flow
from pipelines.model import (
    Change,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Evidence,
    Kind,
    Node,
    Pod,
    Port,
    Protocol,
    Service,
    ServiceCidr,
    ServicePort,
    Settings,
    port_key,
)
from pipelines.table import Table
from pipelines.unit import Member, Unit

LOCAL_NUMBER = 0xFFFFFFFE
SERVICE_RANGES = ("10.96.0.0/16", "fd00:96::/112")


def ips(*texts: str) -> tuple[Ip, ...]:
    return tuple(parse_ip(text) for text in texts)


def interface(text: str) -> Interface:
    return parse_interface(text) if "/" in text else Interface(parse_ip(text), None)


def node(name: str, cidrs: Iterable[str] = (), addresses: Iterable[str] = (), mac: str = "", **more: Any) -> Change:
    value = Node(
        name=name,
        pod_cidrs=tuple(parse_cidr(text) for text in cidrs),
        addresses=tuple(interface(text) for text in addresses),
        mac=parse_mac(mac) if mac else None,
        **({"uplink": "eth1"} | more),
    )
    return Change(Kind.NODE, name, value)


def pod(name: str, on: str, *addresses: str, **more: Any) -> Change:
    return Change(Kind.POD, f"default/{name}", Pod("default", name, node=on, ips=ips(*addresses), **more))


def service(name: str, cluster_ips: Iterable[str], *ports: tuple[str, str, int], **more: Any) -> Change:
    """`ports`: (name, protocol, port)."""
    listed = tuple(ServicePort(called, Protocol(protocol), port) for called, protocol, port in ports)
    value = Service("default", name, cluster_ips=ips(*cluster_ips), ports=listed, **more)
    return Change(Kind.SERVICE, f"default/{name}", value)


def slice_(
    name: str, of: str, endpoints: Iterable[str | Endpoint], *ports: tuple[str, str, int], **more: Any
) -> Change:
    listed = tuple(EndpointPort(called, Protocol(protocol), port) for called, protocol, port in ports)
    found = tuple(one if isinstance(one, Endpoint) else Endpoint(parse_ip(one)) for one in endpoints)
    value = EndpointSlice("default", name, f"default/{of}", ports=listed, endpoints=found, **more)
    return Change(Kind.ENDPOINT_SLICE, f"default/{name}", value)


def service_cidr(*cidrs: str, name: str = "kubernetes") -> Change:
    return Change(Kind.SERVICE_CIDR, name, ServiceCidr(name, cidrs=tuple(parse_cidr(text) for text in cidrs)))


def operator(**settings: Any) -> Change:
    return Change(Kind.SETTINGS, "", Settings(**settings))


def port(on: str, name: str, number: int, mac: str) -> Change:
    return Change(Kind.PORT, port_key(on, name), Port(number, parse_mac(mac)))


def pod_port(on: str, pod_name: str, number: int) -> Change:
    return port(on, pod_port_name("default", pod_name), number, "ee:ee:ee:ee:ee:ee")


def evidence(of: str, mac: str) -> Change:
    return Change(Kind.EVIDENCE, of, Evidence(parse_mac(mac)))


def gone(change: Change) -> Change:
    return change._replace(value=None)


def node_ports(on: str, uplink_mac: str, gateway_mac: str) -> list[Change]:
    """The ports that every bridge has: LOCAL and eth1 (number 1) with one MAC, gw0 (number 2)."""
    return [
        port(on, "eth1", 1, uplink_mac),
        port(on, "LOCAL", LOCAL_NUMBER, uplink_mac),
        port(on, "gw0", 2, gateway_mac),
    ]


def small_cluster() -> list[Change]:
    """n1 and n2 in one subnet, n3 in another; pods a, b (n1), c (n2), d (n3); one service of two families."""
    changes = [service_cidr(*SERVICE_RANGES)]
    for number, subnet in ((1, 77), (2, 77), (3, 88)):
        name, mac = f"n{number}", f"aa:00:00:00:00:0{number}"
        addresses = f"192.168.{subnet}.10{number}/24", f"fd00:{subnet}::10{number}/64"
        cidrs = f"10.10.{number}.0/24", f"fd00:10:{number}::/64"
        changes.append(node(name, cidrs, addresses, mac, datapath_id=number, created=f"2024-01-0{number}"))
        changes += node_ports(name, mac, f"0a:00:00:00:00:0{number}")
    for name, on, last, number in (("a", 1, 10, 10), ("b", 1, 11, 11), ("c", 2, 10, 12), ("d", 3, 10, 13)):
        changes.append(pod(name, f"n{on}", f"10.10.{on}.{last}", f"fd00:10:{on}::{last}"))
        changes.append(pod_port(f"n{on}", name, number))
    changes.append(service("web", ("10.96.0.80", "fd00:96::80"), ("http", "TCP", 80), ("dns", "UDP", 53)))
    backends = ("http", "TCP", 8080), ("dns", "UDP", 5353)
    changes.append(slice_("web-4", "web", ("10.10.1.10", "10.10.2.10"), *backends))
    changes.append(slice_("web-6", "web", ("fd00:10:1::10", "fd00:10:2::10"), *backends))
    return changes


def compiled(*changes: Change) -> Compiler:
    compiler = Compiler()
    compiler.run(changes)
    return compiler


def carried(compiler: Compiler, member: Member) -> list[Unit]:
    """The units that one switch carries."""
    return [unit for key, unit in compiler.units.items() if key.scope in member.scopes]


def flows_of(compiler: Compiler, node_name: str) -> list[Flow]:
    """Every flow of one node's switch."""
    from pipelines.derived import Derived

    members = compiler.facts.peek(Derived.MEMBER).values()
    member = next(member for member in members if member.node == node_name)
    return [flow for unit in carried(compiler, member) for flow in unit.flows]


def in_table(flows: Iterable[Flow], table: Table) -> list[Flow]:
    return [flow for flow in flows if flow.table == table.id]
