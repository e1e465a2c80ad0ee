"""What a lab is told beside its manifests: tunnels, the size of packets, which addresses the outside sees."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from lab.cluster import Lab
from lab.traffic import Probe
from tests.lab.waiting import reaches, soon, unique

pytestmark = pytest.mark.ovs

DEMO = Path(__file__).parents[2] / "examples" / "demo"
UDP_PORTS = {"geneve": 6081, "vxlan": 4789}


@pytest.fixture(scope="module", params=["geneve", "vxlan"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with Lab(
        unique(request.param),
        DEMO,
        tunnel=request.param,
        pod_mtu=1450,
        unmasqueraded=["203.0.113.0/24", "fd00:203::/64"],
    ) as built:
        yield built


def test_flow_says_where_a_tunnel_goes(lab: Lab) -> None:
    """From a on n1 to c on n2 by hand-written flows; the first flows carry what is outside."""
    assert [lab.port_number(node.name, "tun0") for node in lab.plan.nodes] == [3, 3, 3]
    kind = lab.plan.options.tunnel
    ways = {}
    for far, inner in (("192.168.77.102", "10.9.9.4"), ("fd00:77::102", "10.9.9.6")):
        match = f"priority=9,ip,nw_dst={inner},in_port={lab.pod('a').port}"
        ways[inner] = f"{match},actions=set_field:{far}->{'tun_ipv6_dst' if ':' in far else 'tun_dst'},output:tun0"
    lab.ofctl("n2", "add-flow", "br0", f"priority=9,in_port=tun0,actions=output:{lab.pod('c').port}")
    for inner, host in (("10.9.9.4", "192.168.77.102"), ("10.9.9.6", "fd00:77::102")):
        frame = bytes(Ether(dst="02:00:00:00:00:01") / IP(src="10.9.9.9", dst=inner) / UDP(dport=9) / Raw(b"inner"))
        with (
            lab.capture("c", "eth0", f"dst host {inner}") as inside,
            lab.capture("n2", "eth1", f"dst host {host} and udp port {UDP_PORTS[kind]}") as outside,
        ):

            def passed() -> bool:
                """Open vSwitch asks for the MAC of the other end again only when flows have changed."""
                lab.ofctl("n1", "add-flow", "br0", ways[inner])  # noqa: B023
                lab.send_frames("a", "eth0", [frame])  # noqa: B023
                return inside.path.stat().st_size > 24

            soon(passed, f"{kind} to {host}")
        assert bytes(inside.frames()[0]).startswith(frame)
        assert b"inner" in bytes(outside.frames()[0])


def test_pods_send_no_more_than_they_were_given_and_hosts_as_much_as_before(lab: Lab) -> None:
    def size(place: str, device: str) -> int:
        return int(lab.run(place, "ip", "-oneline", "link", "show", device).stdout.split("mtu ")[1].split()[0])

    assert [size("a", "eth0"), size("web-3", "eth0"), size("n1", "br0"), size("n1", "eth1")] == [1450, 1450, 1500, 1500]
    lab.set_pod_mtu("b", 1400)
    assert [size("b", "eth0"), size("n1", lab.pod("b").port), size("n1", "br0")] == [1400, 1500, 1500]
    lab.set_pod_mtu("b", 9000)
    assert [size("b", "eth0"), size("n1", lab.pod("b").port), size("n1", "br0")] == [9000, 9000, 1500]


def test_the_outside_may_see_the_addresses_of_pods(lab: Lab) -> None:
    for node in lab.plan.nodes:
        lab.ofctl(node.name, "add-flow", "br0", "priority=2,actions=NORMAL")
    server = lab.echo("remote", tcp=[8080])
    reaches(lab, "a", "203.0.113.9", "fd00:203::9")
    answers = lab.probe("a", [Probe("tcp", ip, 8080, timeout=8) for ip in ("203.0.113.9", "fd00:203::9")])
    assert [(answer.error, answer.seen_as) for answer in answers] == [("", "10.10.1.10"), ("", "fd00:10:1::10")]
    lab.stop(server)


def test_ports_are_reserved_in_every_node(lab: Lab) -> None:
    paths = "/proc/sys/net/ipv4/ip_local_reserved_ports"
    assert [lab.run(node.name, "cat", paths).stdout.strip() for node in lab.plan.nodes] == ["61440-65535"] * 3
