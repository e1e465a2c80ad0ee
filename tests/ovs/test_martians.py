"""What the uplink cannot bring, by its source, is not taken: its answer would go wherever the frame came from."""

from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from tests.ovs import world
from tests.ovs.cluster import Cluster
from tests.ovs.world import NODES, OUTSIDE_MAC, PODS, PORTS, SERVICES

pytestmark = pytest.mark.ovs

B, N1, OUTSIDE = PODS["b"], NODES["n1"], world.OUTSIDE["outside"]
# No station's, the virtual address, and what is the host's: gateway, SNAT address, its own address.
NOBODY = {
    4: ("0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.5", "240.0.0.1", "255.255.255.255", "169.254.0.253",
        "10.10.1.1", "10.10.1.2", N1.addresses[4]),
    6: ("::", "::1", "::ffff:10.10.1.10", "ff02::1", "fd00:5b::fd",
        "fd00:10:1::1", "fd00:10:1::2", N1.addresses[6]),
}  # fmt: skip


def datagram(family: int, source: str, destination: str, port: int) -> Any:
    ip = (IP if family == 4 else IPv6)(src=source, dst=destination)
    return Ether(src=OUTSIDE_MAC, dst=N1.mac) / ip / UDP(sport=7000, dport=port) / b"hello"


@pytest.mark.parametrize("family", world.FAMILIES)
@pytest.mark.parametrize("to", ["pod", "service"])
def test_a_source_that_cannot_be_there_reaches_no_pod(cluster: Cluster, to: str, family: int) -> None:
    udp = PORTS["udp"]
    address = B.addresses[family] if to == "pod" else SERVICES["only-b"].addresses[family]
    port = udp.target if to == "pod" else udp.port
    own = OUTSIDE.addresses[family]
    frames = [datagram(family, source, address, port) for source in (*NOBODY[family], own)]
    with cluster.watched("b", "eth0", f"udp and dst port {udp.target}") as seen:
        cluster.send("outside", frames)
        cluster.wait(lambda: any(frame.source == own for frame in seen.now), "the last of them, which may pass")
    assert {frame.source for frame in seen} == {own}
