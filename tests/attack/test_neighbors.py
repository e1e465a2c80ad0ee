"""Packet-ins that nobody should send, at the handler that asks for MACs (case B64)."""

import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.fake import PACKET_IN
from pipelines.features import NUMBERS
from pipelines.features.neighbors import WATCH_PEERS, WATCH_ROUTERS
from pipelines.ids import cookie
from pipelines.model import MacSource, neighbor_key
from tests.apps.neighborhood import GATEWAY, OTHER_MAC, ROUTER_MAC, Cluster, announcement

KEY = neighbor_key("n1", GATEWAY[4])
ARP = announcement(GATEWAY[4], OTHER_MAC)


def ip6(header: int, body: bytes) -> bytes:
    """With hop limit 255 and no addresses."""
    return b"\x33" * 12 + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(body), header, 255) + bytes(32) + body


CRAFTED = (
    b"",
    b"\0",
    ARP[:14],
    ARP[:41],
    ARP[:12] + b"\x81\0\0\5" + ARP[12:],
    ARP[:12] + b"\x86\xdd" + ARP[14:],
    ip6(60, bytes([60, 0, *bytes(6)]) * 20),
    ip6(58, b"\xc8" + bytes(23)),
    ip6(58, b"\x88" + bytes(31)),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(mac_sources=(MacSource.NEIGHBOR,))
    made.connect(1)
    made.wait(KEY, ROUTER_MAC)
    yield made
    made.end()


def unharmed(cluster: Cluster) -> bool:
    """Every handler lives, and what was known is known."""
    cluster.run(0.02)
    failed = [row.packet_ins_failed for row in cluster.switches.sessions()]
    return failed == [0] and cluster.router(1, 4) == cluster.router(1, 6) == ROUTER_MAC


@pytest.mark.parametrize("frame", CRAFTED)
@pytest.mark.parametrize("feature", [WATCH_ROUTERS, WATCH_PEERS])
def test_crafted_frames_are_counted_and_dropped(cluster: Cluster, frame: bytes, feature: str) -> None:
    cluster.wait(neighbor_key("n1", GATEWAY[6]), ROUTER_MAC)
    before = cluster.neighbors.malformed
    cluster.fakes[1].tell(frame, feature)
    assert unharmed(cluster)
    assert cluster.neighbors.malformed == before + 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=120), st.builds(lambda at, by: ARP[:at] + by + ARP[at + len(by) :],
                                                             st.integers(0, 41), st.binary(max_size=4)))))  # fmt: skip
def test_no_frames_take_an_address_from_a_router_that_answers(cluster: Cluster, frames: list[bytes]) -> None:
    for frame in frames:
        cluster.fakes[1].tell(frame)
    assert unharmed(cluster)


def test_packet_ins_without_a_port_or_of_a_number_nobody_has_are_survived(cluster: Cluster) -> None:
    for number in (NUMBERS[WATCH_ROUTERS], 127):
        head = struct.pack("!IHBBQHH4x", 0xFFFFFFFF, len(ARP), 1, 14, cookie(number, "", 0), 1, 4)
        cluster.fakes[1].fake.say(PACKET_IN, head + b"\0\0" + ARP)
    assert unharmed(cluster)


def test_a_fail_over_is_heard_after_a_flood(cluster: Cluster) -> None:
    for _ in range(2000):
        cluster.fakes[1].tell(ARP)
    assert unharmed(cluster)
    cluster.stations[GATEWAY[4]][:] = [OTHER_MAC]
    cluster.fakes[1].tell(ARP)
    cluster.wait(KEY, OTHER_MAC)
