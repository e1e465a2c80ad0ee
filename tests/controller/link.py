"""A link that is made up, for discovery: stations that answer, a clock that is a number."""

import itertools
import random
from collections.abc import Callable

from controller.discovery import Discovery, News, Question, Target, Timing
from controller.neighbor_frames import Claim
from pipelines.addresses import Ip, parse_ip

OWN = {"n1": 0xAA01, "n2": 0xAA02, "n3": 0xAA03}
SEGMENT = "192.168.77.0/24"
ROUTER, OTHER = parse_ip("192.168.77.1"), parse_ip("192.168.77.2")
PEER = parse_ip("192.168.77.102")
OLD, NEW, LIAR = 0xFE01, 0xFE02, 0xEE66
HERE = parse_ip("192.168.77.101")


class Link:
    """Stations that answer after `delay` seconds; `stations` has the MACs of each address. Time passes with `run`."""

    def __init__(
        self, stations: dict[Ip, list[int]] | None = None, timing: Timing | None = None, seed: int = 5
    ) -> None:
        self.discovery = Discovery(timing, random.Random(seed))
        self.stations = stations or {}
        self.delay = 0.005
        self.now = 1000.0
        self.asked: list[tuple[float, Question]] = []
        self.news: list[tuple[float, News]] = []
        self._under_way: list[tuple[float, str, Claim]] = []

    def run(self, seconds: float, each: Callable[[], object] = lambda: None) -> None:
        """In steps of a millisecond where something happens."""
        end = self.now + seconds
        while self.now < end:
            self._deliver()
            if (self.discovery.wait(self.now) or 1) <= 0.0011 or self.discovery.wait(self.now) == 0:
                self._take(self.discovery.advance(self.now))
            each()
            self.now += 0.001

    def _deliver(self) -> None:
        due = [item for item in self._under_way if item[0] <= self.now]
        self._under_way = [item for item in self._under_way if item[0] > self.now]
        for _, node, claim in due:
            self.hear(node, claim)

    def hear(self, node: str, claim: Claim) -> None:
        self._take(self.discovery.heard(node, OWN[node], claim, self.now))

    def say(self, ip: Ip, mac: int, node: str = "n1", answer: bool = False) -> None:
        self.hear(node, Claim(ip, mac, answer, HERE, OWN[node]))

    def _take(self, step: tuple[list[Question], list[News]]) -> None:
        for question in step[0]:
            self.asked.append((self.now, question))
            for mac in self.stations.get(question.ip, ()):
                if question.mac in (None, mac):
                    claim = Claim(question.ip, mac, True, HERE, OWN[question.node])
                    self._under_way.append((self.now + self.delay, question.node, claim))
        self.news += [(self.now, each) for each in step[1]]

    @property
    def said(self) -> list[tuple[int, bool]]:
        return [(news.mac, news.reachable) for _, news in self.news]

    def route(self, ip: Ip = ROUTER, node: str = "n1", rank: int = 0, hint: int | None = None) -> str:
        key = f"{node} {ip}"
        self.discovery.follow(key, Target(key, ip, node, rank=rank), self.now)
        if hint is not None:
            self.discovery.hint(key, hint)
        return key

    def problem(self, key: str = f"n1 {ROUTER}") -> str:
        return "; ".join(text for at, text in self.discovery.problems(self.now) if at == key)

    def join(self, *nodes: str) -> None:
        for node in nodes:
            self.discovery.join(node, (node, SEGMENT), self.now)


def known(mac: int = OLD, timing: Timing | None = None) -> Link:
    """A link whose router is known."""
    link = Link({ROUTER: [mac]}, timing)
    link.join("n1")
    link.route()
    link.run(1)
    assert link.said == [(mac, True)]
    link.news.clear()
    link.asked.clear()
    return link


def intervals(link: Link) -> list[float]:
    times = [at for at, _ in link.asked]
    return [round(b - a, 1) for a, b in itertools.pairwise(times)]
