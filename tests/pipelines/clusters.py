"""Random clusters, small enough that their objects get in each other's way all the time.

Names, addresses and prefixes come from short lists in which podCIDRs overlap, pods want gateways' addresses,
services want each other's, nodes share datapath ids and subnets. Port numbers are the one thing that never
clashes on one node: a switch sees to that.
"""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from pipelines.addresses import Cidr, Ip, parse_cidr, parse_ip, pod_port_name
from pipelines.model import (
    Change,
    Claimed,
    Down,
    EgressMode,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Evidence,
    Invalid,
    Kind,
    MacSource,
    Neighbor,
    Node,
    Pod,
    Policy,
    Port,
    Problem,
    Protocol,
    ReplyPath,
    Served,
    Service,
    ServiceCidr,
    ServicePort,
    Settings,
    TrafficMode,
    Tunnel,
    neighbor_key,
    port_key,
    router_evidence_key,
)
from tests.pipelines.objects import LOCAL_NUMBER, interface

NODES = ("n1", "n2", "n3")
PODS = ("a", "b", "c", "d")
SERVICES = ("web", "dns", "db")
AGES = ("2024-01-01", "2024-01-02", "")
MACS = (0, 0xAA0000000001, 0xAA0000000002, 0xFF0000000001)
POD_CIDRS = {
    4: ("10.10.1.0/24", "10.10.2.0/24", "10.10.0.0/16", "10.10.1.128/25", "10.11.0.0/30"),
    6: ("fd00:10:1::/64", "fd00:10:2::/64", "fd00:10::/32"),
}
NODE_ADDRESSES = ("192.168.77.101/24", "192.168.77.102/24", "192.168.88.103/24", "192.168.77.102", "fd00:77::101/64")
POD_IPS = {
    4: ("10.10.1.10", "10.10.1.11", "10.10.2.10", "10.10.1.1", "10.10.1.2", "10.10.1.129", "192.168.77.101"),
    6: ("fd00:10:1::10", "fd00:10:2::10", "fd00:10:1::1", "fd00:77::101"),
}
CLUSTER_IPS = {4: ("10.96.0.10", "10.96.0.11", "198.51.100.1"), 6: ("fd00:96::10", "fd00:96::11")}
SERVICE_CIDRS = ("10.96.0.0/16", "10.96.0.0/24", "fd00:96::/112", "10.96.0.10/32", "10.10.1.0/24")
OUTSIDE = ("198.51.100.7", "192.168.77.101", "192.168.77.102")
NEXT_HOPS = ("192.168.77.1", "192.168.77.2", "192.168.77.102", "fe80::1", "fd00:77::1")
EXTERNAL_IPS = {
    4: ("192.0.2.10", "10.96.0.10", "192.168.77.101", "192.168.77.150"),
    6: ("2001:db8::10", "fd00:77::101", "fd00:77::150"),
}
CLIENTS = ("0.0.0.0/0", "203.0.113.0/24", "10.10.0.0/16", "fd00:203::/64")
MTUS = (None, None, 1500, 1400, 9000)
PORT_NUMBERS = {"eth1": 1, "gw0": 2, "tun0": 3} | {
    pod_port_name("default", name): 10 + at for at, name in enumerate(PODS)
}
PORT_NAMES = (*PORT_NUMBERS, "LOCAL")


def _one_per_family(texts: dict[int, tuple[str, ...]]) -> st.SearchStrategy[tuple[Ip, ...]]:
    four = st.sampled_from(texts[4]).map(parse_ip)
    six = st.sampled_from(texts[6]).map(parse_ip)
    return st.one_of(four.map(lambda ip: (ip,)), six.map(lambda ip: (ip,)), st.tuples(four, six), st.just(()))


def _pod_cidrs() -> st.SearchStrategy[tuple[Cidr, ...]]:
    """One, one of each family, none; or several in any order."""
    four = st.sampled_from(POD_CIDRS[4]).map(parse_cidr)
    six = st.sampled_from(POD_CIDRS[6]).map(parse_cidr)
    several = st.lists(st.one_of(four, six), max_size=3, unique=True).map(tuple)
    return st.one_of(four.map(lambda cidr: (cidr,)), st.tuples(four, six), several, st.just(()))


def _some(texts: Iterable[str], most: int = 2) -> st.SearchStrategy[tuple[Cidr, ...]]:
    return st.lists(st.sampled_from([*texts]).map(parse_cidr), max_size=most, unique=True).map(tuple)


def _problems(kind: Kind, key: str) -> st.SearchStrategy[tuple[Problem, ...]]:
    return st.sampled_from(((), (), (Problem(kind.value, key, "spec", "is strange"),)))


def _named(kind: Kind, name: str) -> str:
    return name if kind in (Kind.NODE, Kind.SERVICE_CIDR) else f"default/{name}"


def _change(kind: Kind, name: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Change]:
    """Most of the time a value, sometimes none, seldom one that cannot be used."""
    key = _named(kind, name)
    invalid = Invalid((Problem(kind.value, key, "spec", "is wrong"),))
    values = st.one_of(value, value, value, value, st.none(), st.just(invalid))
    return values.map(lambda chosen: Change(kind, key, chosen))


def nodes(name: str) -> st.SearchStrategy[Change]:
    value = st.builds(
        Node,
        name=st.just(name),
        uid=st.sampled_from(("one", "two")),
        created=st.sampled_from(AGES),
        pod_cidrs=_pod_cidrs(),
        addresses=st.lists(st.sampled_from(NODE_ADDRESSES).map(interface), max_size=2, unique_by=lambda at: at.ip).map(
            tuple
        ),
        mac=st.sampled_from((None, *MACS)),
        datapath_id=st.sampled_from((None, 1, 2, 3)),
        uplink=st.sampled_from((None, "eth1", "eth1")),
        gateways=st.lists(st.sampled_from(NEXT_HOPS).map(parse_ip), max_size=3, unique=True).map(tuple),
        mtu=st.sampled_from(MTUS),
        zone=st.sampled_from(("", "east", "west")),
        problems=_problems(Kind.NODE, name),
    )
    return _change(Kind.NODE, name, value)


def pods(name: str) -> st.SearchStrategy[Change]:
    value = st.builds(
        Pod,
        namespace=st.just("default"),
        name=st.just(name),
        created=st.sampled_from(AGES),
        node=st.sampled_from((*NODES, "")),
        ips=_one_per_family(POD_IPS),
        mtu=st.sampled_from(MTUS),
    )
    return _change(Kind.POD, name, value)


def services(name: str) -> st.SearchStrategy[Change]:
    port = st.builds(
        ServicePort,
        name=st.sampled_from(("", "http", "dns")),
        protocol=st.sampled_from(Protocol),
        port=st.sampled_from((53, 80)),
        node_port=st.sampled_from((0, 30053, 30080)),
    )
    value = st.builds(
        Service,
        namespace=st.just("default"),
        name=st.just(name),
        created=st.sampled_from(AGES),
        cluster_ips=_one_per_family(CLUSTER_IPS),
        external_ips=_one_per_family(EXTERNAL_IPS),
        load_balancer_ips=_one_per_family(EXTERNAL_IPS),
        ports=st.lists(port, max_size=3, unique_by=(lambda at: at.name, lambda at: (at.protocol, at.port))).map(tuple),
        internal_policy=st.sampled_from(Policy),
        external_policy=st.sampled_from(Policy),
        affinity=st.sampled_from((0, 0, 10800)),
        source_ranges=_some(CLIENTS),
        health_check_port=st.sampled_from((0, 32000)),
    )
    return _change(Kind.SERVICE, name, value)


def slices(name: str) -> st.SearchStrategy[Change]:
    addresses = [parse_ip(text) for text in (*POD_IPS[4][:4], *POD_IPS[6][:2], *OUTSIDE)]
    endpoint = st.builds(
        Endpoint,
        ip=st.sampled_from(addresses),
        ready=st.booleans(),
        serving=st.booleans(),
        terminating=st.booleans(),
        node=st.sampled_from((*NODES, "")),
        for_zones=st.sampled_from(((), ("east",), ("east", "west"))),
        for_nodes=st.sampled_from(((), ("n1",))),
    )
    port = st.builds(
        EndpointPort,
        name=st.sampled_from(("", "http", "dns")),
        protocol=st.sampled_from(Protocol),
        port=st.sampled_from((8080, 5353)),
    )
    value = st.builds(
        EndpointSlice,
        namespace=st.just("default"),
        name=st.just(name),
        service=st.sampled_from(SERVICES).map("default/{}".format),
        ports=st.lists(port, max_size=2, unique_by=lambda at: at.name).map(tuple),
        endpoints=st.lists(endpoint, max_size=4, unique_by=lambda at: at.ip).map(tuple),
    )
    return _change(Kind.ENDPOINT_SLICE, name, value)


def service_cidrs(name: str) -> st.SearchStrategy[Change]:
    value = st.builds(ServiceCidr, name=st.just(name), created=st.sampled_from(AGES), cidrs=_some(SERVICE_CIDRS))
    return _change(Kind.SERVICE_CIDR, name, value)


def operators() -> st.SearchStrategy[Change]:
    value = st.builds(
        Settings,
        service_cidrs=_some(SERVICE_CIDRS, 1),
        mac_sources=st.lists(st.sampled_from(MacSource), unique=True).map(tuple),
        ask_routers=st.booleans(),
        traffic_mode=st.sampled_from(TrafficMode),
        tunnel=st.sampled_from(Tunnel),
        egress=st.sampled_from(EgressMode),
        no_masquerade=_some(("203.0.113.0/24", "10.0.0.0/8", "fd00:203::/64"), 1),
        uplink_mtu=st.sampled_from((1500, 9000)),
        reply_path=st.sampled_from(ReplyPath),
        reply_limit=st.sampled_from((0, 4000)),
        virtual_ip4=st.sampled_from(("169.254.0.253", "169.254.9.9")).map(parse_ip),
        services=st.sampled_from(Served),
        node_port_addresses=_some(("192.168.77.0/24", "fd00:77::/64"), 1),
        source_ranges_everywhere=st.booleans(),
        announce=_some(("192.0.2.0/24", "192.168.77.0/24", "fd00:77::/64"), 2),
        source_complete=st.booleans(),
        endpoints_per_service_port=st.sampled_from((1, 2, 1000)),
    )
    return st.one_of(value, st.none()).map(lambda chosen: Change(Kind.SETTINGS, "", chosen))


def ports() -> st.SearchStrategy[Change]:
    """A port has one of two numbers that no other port of its node ever has."""

    def observed(on: str, name: str, renumbered: bool, mac: int, present: bool) -> Change:
        number = LOCAL_NUMBER if name == "LOCAL" else PORT_NUMBERS[name] + 100 * renumbered
        return Change(Kind.PORT, port_key(on, name), Port(number, mac) if present else None)

    present = st.sampled_from((True, True, True, False))
    chosen = st.sampled_from(NODES), st.sampled_from(PORT_NAMES), st.booleans(), st.sampled_from(MACS[1:]), present
    return st.builds(observed, *chosen)


def neighbors() -> st.SearchStrategy[Change]:
    """What answered for a node, or for what a node may use as next hop."""
    asked = st.sampled_from((None, *NEXT_HOPS)).map(lambda text: parse_ip(text) if text else None)
    value = st.one_of(st.none(), st.builds(Neighbor, mac=st.sampled_from(MACS), reachable=st.booleans()))
    key = st.builds(neighbor_key, st.sampled_from(NODES), asked)
    return st.builds(lambda at, found: Change(Kind.NEIGHBOR, at, found), key, value)


def evidence() -> st.SearchStrategy[Change]:
    """What read-back showed of a node's uplink, or of a node's router."""
    value = st.one_of(st.none(), st.builds(Evidence, mac=st.sampled_from(MACS[1:3]), asked=st.booleans()))
    routers = st.builds(router_evidence_key, st.sampled_from(NODES), st.sampled_from((4, 6)))
    key = st.one_of(st.sampled_from(NODES), routers)
    return st.builds(lambda at, found: Change(Kind.EVIDENCE, at, found), key, value)


def announcements() -> st.SearchStrategy[Change]:
    """Whose switch is away, and which addresses nobody else was found to have."""
    away = st.builds(Change, st.just(Kind.DOWN), st.sampled_from(NODES), st.sampled_from((None, Down())))
    segment = st.sampled_from(("192.168.77.0/24", "fd00:77::/64", "elsewhere"))
    value = st.one_of(st.none(), st.builds(Claimed, node=st.sampled_from(NODES), segment=segment))
    address = st.sampled_from([ip for family in EXTERNAL_IPS.values() for ip in family])
    return st.one_of(away, st.builds(Change, st.just(Kind.CLAIM), address, value))


CHANGES: dict[str, st.SearchStrategy[Change]] = {
    "nodes": st.sampled_from(NODES).flatmap(nodes),
    "ports": ports(),
    "pods": st.sampled_from(PODS).flatmap(pods),
    "services": st.sampled_from(SERVICES).flatmap(services),
    "slices": st.sampled_from(("one", "two", "three")).flatmap(slices),
    "ranges": st.sampled_from(("kubernetes", "more")).flatmap(service_cidrs),
    "neighbors": neighbors(),
    "evidence": evidence(),
    "announcements": announcements(),
    "settings": operators(),
}


def changes(kinds: Iterable[str] = CHANGES) -> st.SearchStrategy[Change]:
    return st.one_of(*(CHANGES[kind] for kind in kinds))


def batches() -> st.SearchStrategy[list[list[Change]]]:
    """Of a few kinds only, or of all: what concerns few things meets itself more often."""
    few = st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=3, unique=True)
    kinds = st.one_of(st.just(list(CHANGES)), few, few)
    return kinds.flatmap(lambda chosen: st.lists(st.lists(changes(chosen), max_size=6), max_size=8))
