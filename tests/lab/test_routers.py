"""Three segments, and two routers of which one is active: who answers, who forwards, and who says so."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6ND_NA
from scapy.layers.l2 import ARP, Ether

from lab.capture import Capture
from lab.cluster import Lab
from lab.status import status
from tests.lab import objects
from tests.lab.waiting import answers, reaches, soon, unique

pytestmark = pytest.mark.ovs

OUTSIDE_MAC = "ee:00:00:00:00:c8"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = objects.write(tmp_path_factory.mktemp("routers") / "manifests", objects.segments(3))
    with Lab(unique("routers"), directory) as built:
        yield built


@pytest.fixture(autouse=True)
def first_router_is_active(lab: Lab) -> Iterator[None]:
    yield
    if lab.plan.active != "router":
        lab.fail_over()


def neighbor(lab: Lab, node: str, address: str) -> str:
    words = lab.run(node, "ip", "neighbor", "show", address, "dev", "br0").stdout.split()
    return words[words.index("lladdr") + 1] if "lladdr" in words else ""


def follows(lab: Lab, node: str, address: str, mac: str) -> bool:
    return neighbor(lab, node, address) == mac


def said(capture: Capture, mac: str) -> list[tuple[str, str]]:
    """Addresses that `mac` has told as its own, by ARP or NA, solicited or not."""
    found = []
    for frame in capture.frames():
        if frame.src == mac and ARP in frame:
            found.append(("arp", frame[ARP].psrc))
        if frame.src == mac and ICMPv6ND_NA in frame:
            found.append(("na", frame[ICMPv6ND_NA].tgt))
    return found


def test_nodes_of_all_segments_reach_each_other_and_the_far_one(lab: Lab) -> None:
    assert [node.segment for node in lab.plan.nodes] == [0, 1, 2]
    for node in ("n1", "n2", "n3"):
        others = [number for number in (1, 2, 3) if f"n{number}" != node]
        addresses = [text for number in others for text in (f"192.168.{70 + number}.11", f"fd00:{70 + number}::11")]
        reaches(lab, node, *addresses, "203.0.113.9", "fd00:203::9")
    reaches(lab, "outside", "192.168.73.11", "fd00:73::11")
    assert "via fe80::1 dev br0" in lab.run("n3", "ip", "-6", "route", "show", "default").stdout


def test_announced_change_is_followed_at_once_by_all(lab: Lab) -> None:
    nodes = {"n1": 0, "n2": 1, "n3": 2}
    for node in nodes:
        reaches(lab, node, "203.0.113.9", "fd00:203::9", "fe80::1%br0")
    with lab.capture("outside", "eth0", "arp or icmp6") as capture:
        assert lab.fail_over() == "router2"
        for node, segment in nodes.items():
            active, _ = lab.router_macs(segment)
            for hop in (f"192.168.{71 + segment}.1", "fe80::1"):
                soon(partial(follows, lab, node, hop, active), f"{node} to follow {hop}")
            reaches(lab, node, "203.0.113.9", "fd00:203::9")
        reaches(lab, "remote", "192.168.73.11", "fd00:73::11")
    told = said(capture, "fe:00:00:00:00:02")
    assert {("arp", "192.168.71.1"), ("na", "fd00:71::1"), ("na", "fe80::1")} <= set(told)
    assert said(capture, lab.router_macs()[1]) == []


def test_change_without_a_word_is_seen_by_asking_only(lab: Lab) -> None:
    reaches(lab, "n1", "203.0.113.9")
    with lab.capture("outside", "eth0", "arp or icmp6") as capture:
        lab.fail_over(announce=False)
        assert neighbor(lab, "n1", "192.168.71.1") == "fe:00:00:00:00:01"
        assert not answers(lab, "n1", "203.0.113.9")  # the old one drops
    assert said(capture, "fe:00:00:00:00:02") == []
    for family in ("-4", "-6"):
        lab.run("n1", "ip", family, "neighbor", "flush", "dev", "br0")
    reaches(lab, "n1", "203.0.113.9", "fd00:203::9")
    assert neighbor(lab, "n1", "192.168.71.1") == "fe:00:00:00:00:02"


def test_router_that_stands_by_neither_answers_nor_forwards(lab: Lab) -> None:
    question = Ether(src=OUTSIDE_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(
        hwsrc=OUTSIDE_MAC, psrc="192.168.71.200", pdst="192.168.71.1"
    )
    for active, standby in (lab.router_macs(), lab.router_macs()[::-1]):
        assert lab.router_macs() == (active, standby)
        with lab.capture("outside", "eth0", "arp[6:2] == 2") as replies:
            until(replies, lambda: lab.send_frames("outside", "eth0", [bytes(question)]))
        assert {frame.src for frame in replies.frames()} == {active}
        ping = Ether(src=OUTSIDE_MAC) / IP(src="192.168.71.200", dst="203.0.113.9") / ICMP(id=7)
        with lab.capture("remote", "eth0", "icmp[icmptype] == icmp-echo") as arrived:
            until(arrived, lambda: lab.send_frames("outside", "eth0", [to(ping, standby, 1), to(ping, active, 2)]))  # noqa: B023
        assert {frame[ICMP].seq for frame in arrived.frames()} == {2}
        lab.fail_over()


def to(frame: Any, mac: str, sequence: int) -> bytes:
    frame.dst, frame[ICMP].seq = mac, sequence
    return bytes(frame)


def until(capture: Capture, act: Callable[[], None]) -> None:
    """Acts again and again until something has been captured."""

    def acted() -> bool:
        act()
        return capture.path.stat().st_size > 24

    soon(acted, "a frame to be captured")


def test_router_may_take_over_with_a_mac_that_nobody_knows(lab: Lab) -> None:
    reaches(lab, "n2", "192.168.72.1")
    lab.fail_over(mac="fe:00:00:00:77:77")
    assert [lab.router_macs(segment)[0] for segment in range(3)] == ["fe:00:00:00:77:77"] * 3
    soon(partial(follows, lab, "n2", "192.168.72.1", "fe:00:00:00:77:77"), "n2 to follow")
    reaches(lab, "n2", "203.0.113.9", "fd00:203::9")
    lab.fail_over()
    lab.fail_over()
    assert lab.router_macs(1) == ("fe:00:00:00:01:02", "fe:00:00:00:01:01")
    reaches(lab, "n2", "203.0.113.9")


def test_who_is_active_is_known_to_everybody_who_attaches(lab: Lab) -> None:
    assert status(Lab.attach(lab.name)).router == "router"
    lab.fail_over()
    again = Lab.attach(lab.name)
    assert (status(again).router, again.router_macs(2)) == ("router2", ("fe:00:00:00:02:02", "fe:00:00:00:02:01"))
    assert again.fail_over() == "router"
    lab.plan = again.plan


def test_cut_router_is_silent_until_it_is_mended(lab: Lab) -> None:
    lab.set_router_link(up=False, segment=1)
    assert not answers(lab, "n2", "192.168.72.1")
    reaches(lab, "n1", "192.168.71.1")
    lab.set_router_link(up=False)
    assert not answers(lab, "n1", "192.168.71.1")
    lab.set_router_link(up=True)
    for number in (1, 2, 3):
        reaches(lab, f"n{number}", f"192.168.{70 + number}.1", f"fd00:{70 + number}::1", "203.0.113.9")
