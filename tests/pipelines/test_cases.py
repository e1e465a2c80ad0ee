"""Kinds of faults known from other systems of this trade, as far as they show in flows: before and after a change."""

import re
from collections.abc import Iterable
from typing import Any

from k8s_bridge import translate
from pipelines.addresses import pod_port_name
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.flow import Group
from pipelines.model import Change, Kind
from pipelines.tables import BY_ID, ENDPOINT_DNAT, SERVICE_LB, TABLES
from pipelines.text import flow_text, group_text
from tests.pipelines.objects import compiled, flows_of, gone, node, pod, port, service, slice_, small_cluster

HTTP, DNS = ("http", "TCP", 8080), ("dns", "UDP", 5353)


def lines(compiler: Compiler, on: str = "n1") -> set[str]:
    return {flow_text(flow) for flow in flows_of(compiler, on)}


def about(compiler: Compiler, *words: str, on: str = "n1") -> list[str]:
    """The flows of one switch that hold all of the words."""
    return sorted(line for line in lines(compiler, on) if all(word in line for word in words))


def groups(compiler: Compiler) -> dict[int, Group]:
    return {group.id: group for unit in compiler.units.values() for group in unit.groups}


def chosen(compiler: Compiler, frontend: str, protocol: str = "tcp", number: int = 80) -> list[str]:
    """ADDRESS:PORT of the endpoints that a service address leads to; by way of group, bucket and endpoint_dnat."""
    (line,) = about(compiler, f"table={SERVICE_LB.id},", f",{protocol}", f"_dst={frontend},tp_dst={number} ")
    found = re.search(r"group:(\d+)", line)
    if found is None:
        assert "CONTROLLER" in line
        return []
    group = groups(compiler)[int(found[1])]
    words = re.findall(r"set_field:(0x\w+)->xreg1", group_text(group))
    picks = [(int(word, 16) >> 32, int(word, 16) & 0xFFFFFFFF) for word in words]
    ends = []
    for to, address in picks:
        (endpoint,) = about(compiler, f"table={ENDPOINT_DNAT.id},", f",{protocol},reg2={to:#x},reg3={address:#x} ")
        ends.append(re.findall(r"nat\(dst=([^)]*)\)", endpoint)[0])
    return sorted(ends)


def from_yaml(kind: Kind, value: dict[str, Any]) -> Change:
    """A change as a source makes it of a Kubernetes object; absent and unusable objects included."""
    translated = translate.from_object(kind, value)
    return Change(kind, translated.key, translated.value)


def n2(**changes: Any) -> Change:
    """n2 of the small cluster, changed."""
    facts: dict[str, Any] = {
        "cidrs": ["10.10.2.0/24"],
        "addresses": ["192.168.77.102/24"],
        "mac": "aa:00:00:00:00:02",
        "datapath_id": 2,
        "created": "2024-01-02",
    }
    return node("n2", **facts | changes)


def cluster_without(*keys: tuple[Kind, str]) -> list[Change]:
    return [change for change in small_cluster() if (change.kind, change.key) not in keys]


# --- nodes -------------------------------------------------------------------------------------------------


def test_b02_a_mac_that_comes_after_its_node_replaces_the_way_by_the_host() -> None:
    uplink = Kind.PORT, "n2 eth1"
    compiler = compiled(*cluster_without(uplink), n2(mac=""))
    ways = about(compiler, "table=70", "nw_dst=10.10.2.0/24")  # three more are for connections that began otherwise
    (before,) = (line for line in ways if "priority=200" in line)
    assert "eth_dst" not in before
    assert "set_field:0x200000/0xf00000->reg0" in before  # egress class gateway
    compiler.run([n2()])
    (after,) = about(compiler, "table=70", "nw_dst=10.10.2.0/24")
    assert "set_field:aa:00:00:00:00:02->eth_dst,set_field:0x300000/0xf00000->reg0" in after
    assert len(ways) == 4
    assert not {*ways} & lines(compiler)


def test_host_connection_that_began_untranslated_never_goes_by_gw0() -> None:
    """Its host would not take its own address from there: where its own routing has sent it is the best there is."""
    compiler = compiled(*cluster_without((Kind.PORT, "n2 eth1")), n2(mac=""))
    (to_peer,) = about(compiler, "table=70", "priority=206", "nw_dst=10.10.2.0/24")
    assert to_peer.endswith("actions=set_field:0x600000/0xf00000->reg0,goto_table:100")  # egress class router
    flows = about(compiler, "table=100", "priority=110", "reg0=0x60000a/", on="n1")
    assert [flow for flow in flows if "eth_dst" in flow] == []
    assert len(flows) == 2


def test_b02_a_mac_that_changes_leaves_no_flow_with_the_old_one() -> None:
    compiler = compiled(*small_cluster())
    assert about(compiler, "aa:00:00:00:00:02")
    compiler.run([port("n2", "eth1", 1, "aa:00:00:00:00:22")])
    assert about(compiler, "aa:00:00:00:00:02") == []
    assert about(compiler, "table=70", "nw_dst=10.10.2.0/24", "aa:00:00:00:00:22")


def test_b13_a_node_made_anew_with_another_pod_cidr_leaves_nothing_of_the_old_one() -> None:
    compiler = compiled(*small_cluster(), n2(uid="old"))
    assert about(compiler, "10.10.2.0/24", on="n3")
    compiler.run([n2(uid="new", cidrs=["10.10.9.0/24"])])
    for on in ("n1", "n2", "n3"):
        assert about(compiler, "10.10.2.0/24", on=on) == []
        assert about(compiler, "=10.10.2.1 ", on=on) == about(compiler, "=10.10.2.2 ", on=on) == []
        assert about(compiler, "10.10.9.0/24", on=on)
    # The endpoint that n2 kept is now one outside the pod network, and tracked as such.
    assert about(compiler, "table=30", "nw_src=10.10.2.10 ")


def test_b13_deleting_and_making_a_node_in_one_step_is_the_same_as_in_two() -> None:
    new = n2(uid="new", cidrs=["10.10.9.0/24"])
    at_once, in_steps = compiled(*small_cluster()), compiled(*small_cluster())
    at_once.run([gone(new), new])
    in_steps.run([gone(new)])
    in_steps.run([new])
    assert at_once.units == in_steps.units


def test_b14_a_nodes_new_address_takes_the_place_of_the_old_one_in_either_order() -> None:
    address, mac = n2(addresses=["192.168.77.112/24"]), port("n2", "eth1", 1, "aa:00:00:00:00:22")
    orders = (address, mac), (mac, address)
    found = []
    for order in orders:
        compiler = compiled(*small_cluster())
        for change in order:
            compiler.run([change])
        for on in ("n1", "n2", "n3"):
            assert about(compiler, "192.168.77.102", on=on) == about(compiler, f"{0xC0A84D66:#x}", on=on) == []
            assert about(compiler, "table=30", "192.168.77.112", on=on)
        assert about(compiler, "table=20", "nw_dst=192.168.77.112", on="n2")
        found.append(lines(compiler, "n1") | lines(compiler, "n2"))
    assert found[0] == found[1]


def test_b14_a_second_address_of_a_node_is_its_own_too() -> None:
    compiler = compiled(*small_cluster())
    before = lines(compiler, "n2")
    compiler.run([n2(cidrs=["10.10.2.0/24", "fd00:10:2::/64"], addresses=["192.168.77.102/24", "192.168.77.112/24"])])
    assert about(compiler, "table=20", "nw_dst=192.168.77.112", on="n2")
    assert about(compiler, "table=68", f"reg3={0xC0A84D70:#x}", on="n2")
    assert about(compiler, "table=0", "nw_src=192.168.77.112", on="n2")
    assert about(compiler, "table=70", "nw_dst=192.168.77.112 ", "aa:00:00:00:00:02", "0x300000/0xf00000->reg0")
    assert about(compiler, "table=68", f"reg3={0xC0A84D70:#x}")  # an endpoint there, seen from a peer
    assert about(compiler, "table=30", "nw_src=192.168.77.112 ")
    assert {line for line in before if "nw_dst=192.168.77.102" in line} <= lines(compiler, "n2")


# --- services ----------------------------------------------------------------------------------------------


def dns_service(*ports: tuple[str, str, int]) -> list[Change]:
    return [
        service("dns", ["10.96.0.10"], *ports),
        slice_("dns-u", "dns", ["10.10.1.10"], ("dns", "UDP", 53)),
        slice_("dns-t", "dns", ["10.10.2.10"], ("dns-tcp", "TCP", 53)),
    ]


def test_b15_one_address_and_port_of_two_protocols_have_endpoints_of_their_own() -> None:
    udp, tcp = ("dns", "UDP", 53), ("dns-tcp", "TCP", 53)
    compiler = compiled(*small_cluster(), *dns_service(udp, tcp))
    assert chosen(compiler, "10.96.0.10", "udp", 53) == ["10.10.1.10:53"]
    assert chosen(compiler, "10.96.0.10", "tcp", 53) == ["10.10.2.10:53"]
    before = about(compiler, "udp")
    compiler.run(dns_service(udp))
    assert about(compiler, "tcp", "nw_dst=10.96.0.10,") == []
    assert about(compiler, "table=42", "10.10.2.10:53)") == []
    assert about(compiler, "udp") == before


def test_b16_an_address_with_two_ports_keeps_the_other_when_one_goes_and_leaves_nothing_at_last() -> None:
    empty = compiled(*small_cluster())
    backends = slice_("two", "two", ["10.10.1.10"], ("http", "TCP", 8080), ("https", "TCP", 8443))
    both = service("two", ["10.96.0.20"], ("http", "TCP", 80), ("https", "TCP", 443))
    compiler = compiled(*small_cluster(), both, backends)
    kept = about(compiler, "10.96.0.20", "tp_dst=80")
    assert about(compiler, "10.96.0.20", "tp_dst=443")
    compiler.run([service("two", ["10.96.0.20"], ("http", "TCP", 80))])
    assert about(compiler, "10.96.0.20") == kept
    assert chosen(compiler, "10.96.0.20") == ["10.10.1.10:8080"]
    compiler.run([gone(both), gone(backends)])
    assert lines(compiler) == lines(empty)
    assert groups(compiler) == groups(empty)


def test_b17_a_changed_port_leaves_no_frontend_of_the_old_one() -> None:
    compiler = compiled(*small_cluster())
    before, before_groups = len(lines(compiler)), len(groups(compiler))
    compiler.run([service("web", ("10.96.0.80", "fd00:96::80"), ("http", "TCP", 8000), ("dns", "UDP", 53))])
    assert about(compiler, "tp_dst=80 ") == []
    assert chosen(compiler, "10.96.0.80", number=8000) == ["10.10.1.10:8080", "10.10.2.10:8080"]
    assert (len(lines(compiler)), len(groups(compiler))) == (before, before_groups)


def test_b17_a_changed_address_leaves_no_frontend_of_the_old_one() -> None:
    compiler = compiled(*small_cluster())
    before = len(lines(compiler))
    compiler.run([service("web", ("10.96.0.81", "fd00:96::80"), ("http", "TCP", 80), ("dns", "UDP", 53))])
    assert about(compiler, "10.96.0.80") == []
    assert chosen(compiler, "10.96.0.81") == ["10.10.1.10:8080", "10.10.2.10:8080"]
    assert len(lines(compiler)) == before


def raw_service(name: str, labels: Iterable[str] = (), **spec: Any) -> Change:
    metadata = {"name": name, "labels": dict.fromkeys(labels, "x")}
    ports = [{"name": "http", "port": 80}]
    return from_yaml(Kind.SERVICE, {"metadata": metadata, "spec": {"ports": ports} | spec})


def test_b20_objects_of_others_make_no_flow() -> None:
    empty = compiled(*small_cluster())
    another_proxy = "service.kubernetes.io/service-proxy-name"
    others = [
        raw_service("headless", clusterIP="None"),
        raw_service("external", type="ExternalName", externalName="example.org"),
        raw_service("labelled", [another_proxy], clusterIP="10.96.0.66"),
        slice_("headless", "headless", ["10.10.1.10"], ("http", "TCP", 8080)),
        slice_("nobody", "nobody", ["10.10.1.11"], ("http", "TCP", 8080)),
    ]
    compiler = compiled(*small_cluster(), *others)
    assert compiler.units == empty.units
    assert compiler.problems() == []


def test_b20_a_service_given_to_another_proxy_goes_and_comes_back_with_its_label() -> None:
    another_proxy = "service.kubernetes.io/service-proxy-name"
    compiler = compiled(*small_cluster(), raw_service("mine", clusterIP="10.96.0.66"))
    served = about(compiler, "10.96.0.66")
    compiler.run([raw_service("mine", [another_proxy], clusterIP="10.96.0.66")])
    assert about(compiler, "10.96.0.66") == []
    compiler.run([raw_service("mine", clusterIP="10.96.0.66")])
    assert about(compiler, "10.96.0.66") == served != []


def test_b20_a_load_balancers_cluster_ip_works_whatever_its_status_says() -> None:
    status = {"loadBalancer": {"ingress": [{"hostname": "lb.example"}, {"ip": "192.0.2.10", "ipMode": "Proxy"}]}}
    change = from_yaml(
        Kind.SERVICE,
        {
            "metadata": {"name": "lb"},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.67", "ports": [{"name": "http", "port": 80}]},
            "status": status,
        },
    )
    compiler = compiled(*small_cluster(), change, slice_("lb", "lb", ["10.10.1.10"], HTTP))
    assert chosen(compiler, "10.96.0.67") == ["10.10.1.10:8080"]
    assert about(compiler, "192.0.2.10") == []


def test_b22_an_unused_service_address_or_port_is_refused_and_never_routed() -> None:
    compiler = compiled(*small_cluster())
    for family, cidr, echo in (("ip", "10.96.0.0/16", "icmp,"), ("ipv6", "fd00:96::/112", "icmp6,")):
        (rest,) = about(compiler, "table=41, priority=100,", f",{family},", f"_dst={cidr} ")
        assert rest.endswith("meter:23297,CONTROLLER:256")
        (ping,) = about(compiler, "table=41", f",{echo}", f"_dst={cidr} ")
        assert ping.endswith("actions=drop")  # answered by nobody, and it does not go round
    unmatched = [line for line in about(compiler, "table=41", "_dst=10.96.0.80") if ",tcp" in line or ",udp" in line]
    assert all("tp_dst=" in line for line in unmatched)


def test_b22_no_route_leads_into_a_service_range() -> None:
    compiler = compiled(*small_cluster())
    for on in ("n1", "n2", "n3"):
        assert about(compiler, "table=70", "_dst=10.96.", on=on) == []


def test_b24_the_families_of_a_service_have_groups_of_their_own() -> None:
    compiler = compiled(*small_cluster())
    found = groups(compiler)
    assert len(found) == 4
    for group in found.values():
        text = group_text(group)
        assert ("->xreg1" in text) != ("->xxreg1" in text)
        assert len(group.buckets) == 2
    owners = compiler.facts.peek(Derived.GROUP_ID)
    assert len(set(owners.values())) == len(owners) == 4


def test_b24_a_services_second_family_comes_and_goes_with_its_spec() -> None:
    ports = ("http", "TCP", 80), ("dns", "UDP", 53)
    compiler = compiled(*small_cluster())
    both = lines(compiler)
    compiler.run([service("web", ("10.96.0.80",), *ports)])
    assert about(compiler, "fd00:96::80") == []
    assert about(compiler, "table=42", "fd00:10:1::10") == []
    assert len(groups(compiler)) == 2
    compiler.run([service("web", ("10.96.0.80", "fd00:96::80"), *ports)])
    assert lines(compiler) == both


def test_b24_a_node_of_one_family_lives_beside_services_of_two() -> None:
    compiler = compiled(*small_cluster(), node("n4", ["10.10.4.0/24"], ["192.168.77.104/24"], datapath_id=4))
    assert compiler.problems() == []
    assert about(compiler, "ipv6", "fd00:10:4", on="n4") == []
    assert chosen(compiler, "10.96.0.80") == ["10.10.1.10:8080", "10.10.2.10:8080"]


# --- endpoints ---------------------------------------------------------------------------------------------


def test_b28_one_address_with_two_ports_is_two_endpoints() -> None:
    web = service("host", ["10.96.0.30"], ("http", "TCP", 80))
    one = slice_("one", "host", ["192.168.77.102"], ("http", "TCP", 8080))
    two = slice_("two", "host", ["192.168.77.102"], ("http", "TCP", 8081))
    compiler = compiled(*small_cluster(), web, one, two)
    assert chosen(compiler, "10.96.0.30") == ["192.168.77.102:8080", "192.168.77.102:8081"]


def test_b34_an_endpoint_of_two_services_stays_until_the_last_of_them_goes() -> None:
    shared = "10.10.1.11"
    one, two = (service(name, [f"10.96.1.{number}"], ("http", "TCP", 80)) for number, name in ((1, "s1"), (2, "s2")))
    slices = [slice_(name, name, [shared], HTTP) for name in ("s1", "s2")]
    compiler = compiled(*small_cluster(), one, two, *slices)
    both = lines(compiler)
    compiler.run([gone(one)])
    assert chosen(compiler, "10.96.1.2") == [f"{shared}:8080"]
    compiler.run([one])
    assert lines(compiler) == both
    compiler.run([slice_("s2", "s2", [], HTTP)])
    assert chosen(compiler, "10.96.1.1") == [f"{shared}:8080"]
    assert chosen(compiler, "10.96.1.2") == []
    compiler.run([gone(one)])
    assert about(compiler, "table=42", shared) == []


def test_b69_what_a_revision_adds_never_points_at_what_it_removes() -> None:
    """Adds go in before anything goes out, groups first in and last out: so both ends of a change must be whole."""
    compiler = compiled(*small_cluster())
    smaller = slice_("web-4", "web", ("10.10.1.10",), HTTP, DNS)
    for changes in ([smaller], [gone(smaller)], [gone(service("web", ()))]):
        revision = compiler.run(changes)
        removed = {group.id for change in revision.changes for group in change.old.groups} - groups(compiler).keys()
        added = [flow_text(flow) for change in revision.changes for flow in change.new.flows]
        assert not [line for line in added for number in removed if f"group:{number}" in line]
        still = {int(number) for line in lines(compiler) for number in re.findall(r"group:(\d+)", line)}
        assert still <= groups(compiler).keys()


def test_b69_only_calls_that_come_back_lead_to_endpoints_and_the_longest_is_short() -> None:
    """A group calls group_share, that calls affinity_learn, endpoint_dnat, endpoint_place, snat_need: depth five."""

    def depth(table: int) -> int:
        return max((1 + depth(called) for called in BY_ID[table].calls), default=0)

    assert depth(SERVICE_LB.id) == 5  # a loop would not end
    assert max(depth(table.id) for table in TABLES.values()) == 5


def test_a_pod_that_moves_to_another_node_is_overwritten_where_it_goes_and_removed_where_it_was() -> None:
    compiler = compiled(*small_cluster())
    moved = [pod("a", "n2", "10.10.1.10"), port("n2", pod_port_name("default", "a"), 20, "0a:58:0a:0a:01:0a")]
    compiler.run(moved)
    assert about(compiler, "table=70, priority=300", "nw_dst=10.10.1.10 ") == []
    assert about(compiler, "table=70, priority=300", "nw_dst=10.10.1.10 ", on="n2")
