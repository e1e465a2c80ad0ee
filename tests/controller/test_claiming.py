"""When an address is probed, announced and defended, with a clock that is a number."""

import pytest

from controller.claiming import Claiming, Phase, Sending, Timing
from pipelines.addresses import Ip, parse_ip

VIP, OTHER = parse_ip("192.168.77.150"), parse_ip("fd00:77::150")
MAC, NEW_MAC, STRANGER = 0xAA01, 0xAA02, 0xEE66


class Link:
    """`unable`: nodes that cannot send. Time passes with `run`, in steps of 10 ms."""

    def __init__(self, timing: Timing | None = None) -> None:
        self.unable: set[str] = set()
        self.claiming = Claiming(lambda node, ip, probing: node not in self.unable, timing)
        self.now = 1000.0
        self.sent: list[tuple[float, Sending]] = []
        self.claimed: list[tuple[float, Ip, str]] = []

    def run(self, seconds: float) -> None:
        end, due = self.now + seconds, self.now
        while self.now < end:
            if due <= self.now:
                step = self.claiming.advance(self.now)
                self.sent += [(self.now, frame) for frame in step.frames]
                self.claimed += [(self.now, ip, node) for ip, node in step.claimed]
                due = self.now + (self.claiming.wait(self.now) or 0.1)
            self.now += 0.01

    def times(self, *, probe: bool, node: str = "n1") -> list[float]:
        return [round(at - 1000, 1) for at, one in self.sent if one.probe is probe and one.node == node]

    def hold(self, ip: Ip = VIP, node: str = "n1", mac: int = MAC) -> None:
        """Up to the last announcement."""
        self.claiming.follow(ip, node)
        self.run(1)
        self.claiming.answering(ip, node, mac, self.now)
        self.run(3)
        assert self.claiming.phase(ip) is Phase.HELD
        self.sent.clear()


@pytest.fixture
def link() -> Link:
    return Link()


def test_three_probes_and_an_address_is_ours(link: Link) -> None:
    link.claiming.follow(VIP, "n1")
    link.run(5)
    assert link.times(probe=True) == [0.0, 0.2, 0.4]
    assert [(round(at - 1000, 1), ip, node) for at, ip, node in link.claimed] == [(0.6, VIP, "n1")]
    assert link.times(probe=False) == [], "its flows are not there yet"
    assert link.claiming.wait(link.now) is None


def test_it_is_announced_three_times_when_the_switch_answers(link: Link) -> None:
    link.claiming.follow(VIP, "n1")
    link.run(1)
    link.claiming.answering(VIP, "n1", MAC, link.now)
    link.claiming.answering(VIP, "n1", MAC, link.now)
    link.run(9)
    assert link.times(probe=False) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("node", "mac"), [("n2", MAC), ("n1", NEW_MAC)])
def test_another_node_or_another_mac_is_announced_at_once_without_a_probe(link: Link, node: str, mac: int) -> None:
    link.hold()
    link.claiming.follow(VIP, node)
    link.claiming.answering(VIP, node, mac, link.now)
    link.run(9)
    assert [one for _, one in link.sent] == [Sending(node, VIP, False)] * 3


def test_a_node_that_cannot_send_does_so_as_soon_as_it_can(link: Link) -> None:
    link.unable.add("n1")
    link.claiming.follow(VIP, "n1")
    link.run(3)
    assert link.sent == []
    assert link.claiming.phase(VIP) is Phase.WAITING
    link.unable.clear()
    link.run(1)
    assert len(link.times(probe=True)) == 3
    link.unable.add("n1")
    link.claiming.answering(VIP, "n1", MAC, link.now)
    link.run(3)
    assert link.times(probe=False) == []
    link.unable.clear()
    link.run(3)
    assert len(link.times(probe=False)) == 3


@pytest.mark.parametrize("when", [0.05, 0.3, 0.55])
def test_whoever_objects_to_a_probe_keeps_the_address_and_is_asked_again(link: Link, when: float) -> None:
    link.claiming.follow(VIP, "n1")
    link.run(when)
    link.claiming.heard("n1", VIP, STRANGER, link.now)
    link.run(25)
    assert link.claimed == []
    assert link.claiming.phase(VIP) is Phase.CONFLICT
    assert "00:00:00:00:ee:66 answers" in link.claiming.problems(link.now)[0][1]
    before = len(link.sent)
    link.run(5.5)
    assert len(link.sent) > before
    assert link.claiming.phase(VIP) is Phase.CONFLICT, "while it is being asked again"
    link.run(1)
    assert link.claiming.phase(VIP) is Phase.HELD
    assert link.claiming.problems(link.now) == []


def test_what_another_node_hears_is_not_about_this_probe(link: Link) -> None:
    link.claiming.follow(VIP, "n1")
    link.run(0.1)
    link.claiming.heard("n2", VIP, STRANGER, link.now)
    link.claiming.heard("n1", OTHER, STRANGER, link.now)
    link.run(1)
    assert len(link.claimed) == 1


def test_a_probe_by_one_node_says_nothing_to_the_next(link: Link) -> None:
    link.claiming.follow(VIP, "n1")
    link.run(0.3)
    link.claiming.follow(VIP, "n2")
    link.run(1)
    assert len(link.times(probe=True, node="n2")) == 3
    assert [node for _, _, node in link.claimed] == ["n2"]


def test_an_address_that_is_held_is_defended_now_and_then_and_the_rival_reported_for_a_minute(link: Link) -> None:
    link.hold()
    for _ in range(50):
        link.claiming.heard("n1", VIP, STRANGER, link.now)
        link.run(0.3)
    assert [one for _, one in link.sent] == [Sending("n1", VIP, False)] * 2, "once in ten seconds"
    assert link.claiming.phase(VIP) is Phase.HELD
    assert "claims 192.168.77.150 too" in link.claiming.problems(link.now)[0][1]
    link.run(61)
    assert link.claiming.problems(link.now) == []


def test_an_address_that_no_node_answers_for_any_more_is_probed_again(link: Link) -> None:
    link.hold()
    assert link.claiming.follow(VIP, None)
    assert not link.claiming.follow(VIP, None)
    assert link.claiming.phase(VIP) is None
    link.claiming.follow(VIP, "n1")
    link.run(1)
    assert len(link.times(probe=True)) == 3


def test_what_was_read_back_is_believed_while_nothing_is_known(link: Link) -> None:
    link.unable.add("n1")
    assert not link.claiming.recall(VIP, "n1", MAC), "nobody wants it"
    link.claiming.follow(VIP, "n1")
    assert link.claiming.recall(VIP, "n1", MAC)
    link.unable.clear()
    link.claiming.answering(VIP, "n1", MAC, link.now)
    link.run(3)
    assert link.sent == []
    link.claiming.answering(VIP, "n1", NEW_MAC, link.now)
    link.run(3)
    assert len(link.times(probe=False)) == 3


def test_what_was_read_back_is_not_believed_against_what_was_found(link: Link) -> None:
    link.claiming.follow(VIP, "n1")
    link.run(0.1)
    assert not link.claiming.recall(VIP, "n1", MAC)
    link.claiming.heard("n1", VIP, STRANGER, link.now)
    link.unable.add("n1")
    link.run(31)
    assert not link.claiming.recall(VIP, "n1", MAC)


def test_a_thousand_addresses_are_not_sent_at_once() -> None:
    link = Link()
    for last in range(1000):
        link.claiming.follow(Ip(4, VIP.value + last), "n1")
    link.run(10)
    assert len(link.claimed) == 1000
    most = max(sum(at == when for at, _ in link.sent) for when in {at for at, _ in link.sent})
    assert most == Timing().most
