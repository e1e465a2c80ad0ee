"""Load balancer addresses in the nodes' own subnet, on real switches: one node answers, and another when it is gone."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from lab.traffic import Probe
from tests.ovs.asking import gone, names, probes
from tests.ovs.cluster import Cluster, spread
from tests.ovs.objects import Object
from tests.ovs.world import FAMILIES, NODES, OUTSIDE_MAC, PLACES, SEGMENTS, Service, both, router

pytestmark = pytest.mark.ovs

SETTINGS = {"announce": ["192.168.77.128/26", "fd00:77::/64", "192.168.88.128/26"]}
HERE = [name for name in NODES if SEGMENTS[name] == 0]
NODE_OF = {place.mac: name for name, place in NODES.items()}


class Balanced(Service):
    """A service with load balancer addresses on the first segment."""

    @property
    def addresses(self) -> dict[int, str]:
        all_ = {4: f"192.168.77.{self.number}", 6: f"fd00:77::{self.number}"}
        return {family: all_[family] for family in self.families}

    def objects(self, policy: str = "Cluster") -> list[Object]:
        service, *slices = Service(*self).objects()
        service["spec"] |= {"type": "LoadBalancer", "externalTrafficPolicy": policy}
        service["status"] = {"loadBalancer": {"ingress": [{"ip": ip} for ip in self.addresses.values()]}}
        return [service, *slices]


def rows(cluster: Cluster, service: Balanced) -> dict[int, dict[str, Any]]:
    """The frontend with its load balancer address, by family."""
    found = cluster.product.get(f"/v1/services/default/{service.name}")["frontends"]
    return {family: next(row for row in found if row["address"] == ip) for family, ip in service.addresses.items()}


def states(cluster: Cluster, service: Balanced) -> set[str]:
    return {row["announcement"] for row in rows(cluster, service).values()}


def holders(cluster: Cluster, service: Balanced) -> dict[int, str | None]:
    return {family: row["announced_by"] for family, row in rows(cluster, service).items()}


def announced(cluster: Cluster, service: Balanced, seconds: float = 20) -> dict[int, str]:
    """Waits until it is; who answers, by family."""
    cluster.wait(lambda: states(cluster, service) == {"announced"}, "the addresses to be announced", seconds)
    cluster.level()
    return {family: str(node) for family, node in holders(cluster, service).items()}


def forget(cluster: Cluster) -> None:
    """The client outside knows nobody's MAC."""
    cluster.lab.run("outside", "ip", "neigh", "flush", "dev", "eth0")


def said(frames: list[Any], address: str) -> list[tuple[str, str]]:
    """Who says that it has the address, and to whom (MAC)."""
    found = []
    for frame in frames:
        if ARP in frame and frame[ARP].psrc == address:
            found.append((frame[ARP].hwsrc, frame.dst))
        elif ICMPv6ND_NA in frame and frame[ICMPv6ND_NA].tgt == address:
            found.append((frame[ICMPv6NDOptDstLLAddr].lladdr, frame.dst))
    return found


TO_ALL = {4: "ff:ff:ff:ff:ff:ff", 6: "33:33:00:00:00:01"}


@pytest.fixture
def service(cluster: Cluster) -> Iterator[Balanced]:
    """With an endpoint behind the router, which no node of the segment takes with it."""
    made = Balanced("balanced", 150, both("g"))
    cluster.put(*made.objects())
    announced(cluster, made)
    yield made
    gone(cluster, made.name)


def test_a_client_outside_reaches_the_address_on_its_own_segment_without_a_route(
    cluster: Cluster, service: Balanced
) -> None:
    by = holders(cluster, service)
    for _ in range(3):
        forget(cluster)
        with cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture:
            assert names(cluster, "outside", list(service.addresses.values()), times=2) == {"g"}
        for family, address in service.addresses.items():
            answers = [mac for mac, to in said(capture.frames(), address) if to == OUTSIDE_MAC]
            assert answers, "nobody has answered"
            assert {NODE_OF[mac] for mac in answers} == {by[family]}


def test_pods_and_nodes_reach_it_wherever_they_are(cluster: Cluster, service: Balanced) -> None:
    addresses = service.addresses
    for client in ("a", "c", "d", "n1", "n2", "n3"):
        assert names(cluster, client, list(addresses.values()), times=2) == {"g"}, client
    assert names(cluster, "n4", [addresses[4]], times=2) == {"g"}
    for node in ("n1", "n2"):  # announcements reach hosts too; where they send to does not matter
        cluster.lab.run(node, "ip", "neigh", "flush", "dev", "br0")
        assert names(cluster, node, list(addresses.values()), times=2) == {"g"}
        for address in addresses.values():
            known = cluster.lab.run(node, "ip", "neigh", "show", "to", address, "dev", "br0").stdout
            assert re.search(r"lladdr ([0-9a-f:]+)", known)[1] == NODES[node].mac, known  # type: ignore[index]


def test_who_wants_the_address_is_told_that_it_has_an_owner(cluster: Cluster, service: Balanced) -> None:
    """RFC 5227 and RFC 4862: a station asks before it takes an address."""
    four, six = service.addresses[4], service.addresses[6]
    group = "33:33:ff:00:01:50"
    wanted = [
        Ether(src=OUTSIDE_MAC, dst=TO_ALL[4]) / ARP(op=1, hwsrc=OUTSIDE_MAC, psrc="0.0.0.0", pdst=four),
        Ether(src=OUTSIDE_MAC, dst=group) / IPv6(src="::", dst="ff02::1:ff00:150", hlim=255) / ICMPv6ND_NS(tgt=six),
    ]
    with cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture:
        for _ in range(3):
            cluster.send("outside", wanted)
            time.sleep(0.3)
    for family, address in service.addresses.items():
        by = {NODE_OF.get(mac) for mac, _ in said(capture.frames(), address)}
        assert by == {holders(cluster, service)[family]}, family


def test_it_is_probed_first_and_announced_when_it_is_free(cluster: Cluster) -> None:
    new = Balanced("new", 151, both("g"))
    with cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture:
        cluster.put(*new.objects())
        by = announced(cluster, new)
        time.sleep(2.5)  # three announcements, a second apart
    frames = capture.frames()
    for family, address in new.addresses.items():
        asked = [
            at
            for at, frame in enumerate(frames)
            if (ARP in frame and frame[ARP].psrc == "0.0.0.0" and frame[ARP].pdst == address)
            or (ICMPv6ND_NS in frame and frame[IPv6].src == "::" and frame[ICMPv6ND_NS].tgt == address)
        ]
        told = [
            at for at, frame in enumerate(frames) if (NODES[by[family]].mac, TO_ALL[family]) in said([frame], address)
        ]
        assert len(asked) == len(told) == 3
        assert max(asked) < min(told)
    gone(cluster, "new")
    cluster.wait(lambda: answers(cluster, *new.addresses.values()) == set(), "nobody to answer any more")


def answers(cluster: Cluster, *addresses: str) -> set[str | None]:
    """The nodes that answer for any of these addresses to a client that knows nothing."""
    forget(cluster)
    with cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture:
        cluster.lab.probe("outside", probes(list(addresses), timeout=0.5))
    return {
        NODE_OF.get(mac) for address in addresses for mac, to in said(capture.frames(), address) if to == OUTSIDE_MAC
    }


def test_with_a_local_policy_the_node_with_the_endpoint_announces_and_changes_with_it(cluster: Cluster) -> None:
    local = Balanced("local", 152, both("e"))
    cluster.put(*local.objects("Local"))
    assert set(announced(cluster, local).values()) == {"n2"}
    addresses = list(local.addresses.values())
    assert names(cluster, "outside", addresses, times=3) == {"e"}
    seen = cluster.lab.probe("outside", probes(addresses))
    assert {answer.seen_as for answer in seen} == {"192.168.77.200", "fd00:77::200"}
    with cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture:
        cluster.put(*Balanced("local", 152, both("b")).objects("Local"))
        assert set(announced(cluster, local).values()) == {"n1"}
        assert names(cluster, "outside", addresses, times=3) == {"b"}
        time.sleep(0.3)
    for family, address in local.addresses.items():
        assert (NODES["n1"].mac, TO_ALL[family]) in said(capture.frames(), address)
    assert answers(cluster, *addresses) == {"n1"}
    cluster.put(*Balanced("local", 152, both("g")).objects("Local"))
    assert states(cluster, local) == {"no node"}
    assert answers(cluster, *addresses) == set()
    gone(cluster, "local")


def test_an_address_that_a_station_has_is_not_announced_until_it_is_free(cluster: Cluster) -> None:
    taken = Balanced("taken", 153, both("g"))
    own = [f"{taken.addresses[4]}/24", f"{taken.addresses[6]}/64"]
    for address in own:
        cluster.lab.run("outside", "ip", "address", "add", address, "dev", "eth0", *["nodad"] * (":" in address))
    try:
        cluster.put(*taken.objects())
        cluster.wait(lambda: states(cluster, taken) == {"conflict"}, "the conflict to be found")
        assert set(holders(cluster, taken).values()) == {None}
        wrong = [row for row in cluster.product.get("/v1/problems") if row["object"] == "default/taken"]
        assert len(wrong) == len(FAMILIES)
        assert all(OUTSIDE_MAC in row["reason"] for row in wrong)
        with cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture:
            time.sleep(1.5)
        assert all(NODE_OF.get(mac) is None for ip in taken.addresses.values() for mac, _ in said(capture.frames(), ip))
    finally:
        for address in own:
            cluster.lab.run("outside", "ip", "address", "delete", address, "dev", "eth0")
    announced(cluster, taken, 45)
    assert names(cluster, "outside", list(taken.addresses.values()), times=2) == {"g"}
    assert not [row for row in cluster.product.get("/v1/problems") if row["object"] == "default/taken"]
    gone(cluster, "taken")


def test_the_routers_address_is_the_routers(cluster: Cluster) -> None:
    """Pods reach the world through it, and nobody answers for it, whatever a service says."""
    greedy = Balanced("greedy", 1, both("g"))
    assert greedy.addresses == {family: router(0, family) for family in FAMILIES}
    cluster.put(*greedy.objects())
    for row in rows(cluster, greedy).values():
        assert (row["state"], row["announcement"]) == ("not served", None)
        assert "is a router of Node n" in row["reason"]
    with cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture:
        forget(cluster)
        for address in greedy.addresses.values():
            cluster.lab.run("outside", "ping", "-c", "2", "-W", "5", address)
        for client in ("a", "n1"):
            asked = [Probe("tcp", address, 8080, timeout=10) for address in PLACES["remote"].addresses.values()]
            assert spread(cluster.lab.probe(client, asked)) == {"remote"}, client
    for address in greedy.addresses.values():
        speakers = {mac for mac, _ in said(capture.frames(), address)}
        assert speakers
        assert not speakers & set(NODE_OF)
    gone(cluster, "greedy")


def test_a_restart_of_the_controller_is_not_noticed(cluster: Cluster, service: Balanced) -> None:
    before, by = cluster.held(), holders(cluster, service)
    time.sleep(2.5)  # until it was announced three times
    with (
        cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture,
        cluster.streams([("outside", service)]) as streams,
    ):
        time.sleep(0.3)
        cluster.product.restart()
        cluster.ready()
        cluster.wait(lambda: states(cluster, service) == {"announced"}, "what was read back to be believed")
        assert cluster.sent() == 0
        assert cluster.held() == before
        time.sleep(1)
    assert streams.broken == {}
    assert holders(cluster, service) == by
    for family, address in service.addresses.items():
        assert [to for _, to in said(capture.frames(), address) if to == TO_ALL[family]] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_when_a_switch_dies_another_node_takes_over_and_says_so(
    cluster: Cluster, service: Balanced, family: int
) -> None:
    by = announced(cluster, service)[family]
    address = service.addresses[family]
    assert names(cluster, "outside", [address], times=2) == {"g"}
    with cluster.lab.capture("outside", "eth0", "arp or icmp6") as capture:
        began = time.monotonic()
        cluster.lab.kill_vswitchd(by)
        try:
            cluster.wait(lambda: holders(cluster, service)[family] not in (by, None), "another node to take over")
            heirs = holders(cluster, service)[family]
            cluster.wait(lambda: names(cluster, "outside", [address], times=1) == {"g"}, "it to be reached again")
            elapsed = time.monotonic() - began
            time.sleep(0.3)
        finally:
            cluster.lab.start_vswitchd(by)
    print(f"\nIPv{family}: from {by} to {heirs} in {elapsed:.1f} s")
    assert (NODES[str(heirs)].mac, TO_ALL[family]) in said(capture.frames(), address)
    assert elapsed < 12  # six, on a machine that has time
    cluster.ready()
    cluster.wait(lambda: holders(cluster, service)[family] == by, "it to come back")
    assert answers(cluster, address) == {by}
    assert names(cluster, "outside", [address], times=2) == {"g"}


def test_a_new_uplink_mac_is_announced(cluster: Cluster, service: Balanced) -> None:
    by = announced(cluster, service)[4]
    mac = "aa:00:00:00:77:77"
    with cluster.lab.capture("outside", "eth0", "arp") as capture:
        cluster.lab.set_uplink_mac(by, mac)
        try:
            cluster.wait(
                lambda: (mac, TO_ALL[4]) in said(capture.frames(), service.addresses[4]), "the new MAC to be announced"
            )
            # The router has to find the node at its new MAC, too: what it brings back to it.
            cluster.wait(
                lambda: names(cluster, "outside", [service.addresses[4]], times=1) == {"g"}, "it to be reached"
            )
        finally:
            cluster.lab.set_uplink_mac(by, NODES[by].mac)
    cluster.wait(lambda: cluster.state(by) == "READY", "the switch to be as before")
    cluster.ready()


def test_nobody_answers_when_nothing_is_asked_for(cluster: Cluster, service: Balanced) -> None:
    """Last: the product runs with other settings afterwards."""
    cluster.product.restart({"announce": []})
    cluster.ready()
    cluster.wait(lambda: not any(cluster.flows(node, "arp,arp_tpa=192.168.77.150") for node in HERE), "no flows")
    assert answers(cluster, *service.addresses.values()) == set()
    assert states(cluster, service) == {"not announced"}
