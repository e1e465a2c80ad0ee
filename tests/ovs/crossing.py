"""Streams, pings and captures across a change: what was lost, and whether every frame on the segments was in order.

Every test that crosses a change prints a row: how much was sent, lost and broken on the ways that the change
concerns, and beside it the same of streams that it does not concern, which show what the machine itself loses.
"""

import re
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from lab.netns import LabError
from pipelines.addresses import mac_text
from pipelines.fields import TUNNEL_MAC
from tests.ovs import world
from tests.ovs.cluster import SPARED, Cluster, Stream
from tests.ovs.wire import Frame

Pairs = Collection[tuple[str, str]]

# Client and service (or place): along the uplinks of one segment, and from one segment to another.
STRAIGHT: Pairs = (("a", "c"), ("c", "a"), ("n1", "c"), ("a", "only-e"), ("n1", "only-e"))
ROUTED: Pairs = (("a", "g"), ("d", "c"), ("n1", "only-g"), ("a", "only-g"))
CALM: Pairs = (("a", "b"), ("g", "d"))  # on one node: no change of ways to others concerns them
VIRTUAL_MAC = "fe:00:5e:00:01:01"  # as two routers share it
LINGER = 0.5  # seconds after the change, for what it does to come to light
NEIGHBOR_MESSAGES = range(133, 138)
ROUTERS = {mac for segment in range(len(world.NETS)) for mac in (f"fe:00:00:00:{segment:02x}:0{n}" for n in (1, 2))}


class Pings(NamedTuple):
    sent: int
    answered: int


class Crossed:
    """What became of everything that ran across a change; filled when it is over."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.concerned: dict[str, Stream] = {}
        self.calm: dict[str, Stream] = {}
        self.pings: dict[str, Pings] = {}
        self.wires: dict[int, list[Frame]] = {}
        self.macs: set[str] = set()  # beside the world's: of stations that have changed theirs

    @property
    def row(self) -> str:
        return (
            f"{self.name}: {_sum(self.concerned)}; pings {sum(p.sent for p in self.pings.values())} sent, "
            f"{sum(p.sent - p.answered for p in self.pings.values())} lost | beside it {_sum(self.calm)}"
        )

    def lost(self, *words: str) -> dict[str, int]:
        """Datagrams and pings without an answer, by stream; of those whose label has one of the words."""
        counts = {label: one.sent - one.answered for label, one in self.concerned.items()}
        counts |= {label: one.sent - one.answered for label, one in self.pings.items()}
        return {label: count for label, count in counts.items() if not words or any(word in label for word in words)}

    def breaks(self, *words: str) -> dict[str, tuple[str, ...]]:
        """Connections that broke, by stream."""
        chosen = {s: one.breaks for s, one in self.concerned.items() if not words or any(word in s for word in words)}
        return {label: breaks for label, breaks in chosen.items() if breaks}

    def longest(self, *words: str) -> float:
        """Seconds without an answer, of the stream that waited longest."""
        chosen = [s for label, s in self.concerned.items() if not words or any(word in label for word in words)]
        return max(stream.longest for stream in chosen) / 1e3

    def nothing_lost(self, but: int = 0) -> None:
        """But what a busy machine loses by itself, of each stream, and `but` more."""
        spared = SPARED + but + max(one.sent - one.answered for one in self.calm.values())
        lost = {label: count for label, count in self.lost().items() if count > spared}
        assert not lost, lost
        assert not self.breaks(), self.breaks()

    def silent_at_most(self, seconds: float, *words: str) -> None:
        """Longer only by what streams beside it had to wait; and no connection broke."""
        assert not self.breaks(*words), self.breaks(*words)
        assert self.longest(*words) <= seconds + max(one.longest for one in self.calm.values()) / 1e3

    def check_wires(self) -> None:
        """MACs, hop limits and tags of every frame; and no answer came twice."""
        for segment, frames in self.wires.items():
            wrong = Counter((problem, frame) for frame in frames if (problem := _wrong(frame, segment, self.macs)))
            assert not wrong, f"segment {segment}: {wrong.most_common(5)}"
        twice = [label for label, one in (self.concerned | self.calm).items() if one.answered > one.sent]
        assert not twice, twice


def _sum(streams: Mapping[str, Stream]) -> str:
    lost = {label: one.sent - one.answered for label, one in streams.items()}
    return (
        f"{len(streams)} streams {sum(one.sent for one in streams.values())} sent, {sum(lost.values())} lost "
        f"(most {max(lost.values())}), {sum(len(one.breaks) for one in streams.values())} broken, "
        f"longest silence {max(one.longest for one in streams.values()):.0f} ms"
    )


@contextmanager
def crossing(
    cluster: Cluster,
    name: str,
    pairs: Pairs,
    *,
    pings: Pairs = (("a", "c"), ("a", "d")),
    calm: Pairs = CALM,
    macs: Collection[str] = (),
    pause: float = 0.04,
) -> Iterator[Crossed]:
    """Everything runs from before the block until after it. `macs`: of stations, beside those of the world."""
    crossed = Crossed(name)
    crossed.macs |= {*macs, *(node.mac for node in cluster.lab.plan.nodes)}
    with ExitStack() as stack:
        wires = {n: stack.enter_context(cluster.watched("fabric", f"seg{n}")) for n in range(len(world.NETS))}
        pinging = stack.enter_context(_pinging(cluster, pings, crossed))
        streams = stack.enter_context(cluster.streams([*pairs, *calm], pause))
        yield crossed
        time.sleep(LINGER)
        del pinging
    crossed.wires = dict(wires)
    crossed.concerned = {
        label: one for label, one in streams.results.items() if int(label.rpartition("#")[2]) < len(pairs)
    }
    crossed.calm = {label: one for label, one in streams.results.items() if label not in crossed.concerned}
    print(f"\n{crossed.row}")
    most = sorted(crossed.lost().items(), key=lambda item: -item[1])[:4]
    print(", ".join(f"{label}: {count}" for label, count in most if count))
    crossed.check_wires()


@contextmanager
def _pinging(cluster: Cluster, pairs: Pairs, crossed: Crossed) -> Iterator[None]:
    running = {}
    for client, target in pairs:
        mine = world.PLACES[client].addresses
        for family, address in world.PLACES[target].addresses.items():
            if family in mine:
                label = f"{client} → {target} ping{family}"
                running[label] = cluster.lab.popen(client, "ping", "-q", "-i", "0.05", address)
    yield
    for label, process in running.items():
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=15)
        found = re.search(r"(\d+) packets transmitted, (\d+) received", said)
        if found is None:
            raise LabError(f"{label}: {said}{errors}")
        crossed.pings[label] = Pings(int(found[1]), int(found[2]))


# --- what may be on a segment ----------------------------------------------------------------------------------------

_POD_OF = {address: pod.node for pod in world.PODS.values() for address in pod.addresses.values()}
_HOSTS = {address for node in world.NODES.values() for address in node.addresses.values()}
HOP_LIMIT = 64


def _stations(segment: int) -> set[str]:
    nodes = {node.mac for node in world.NODES.values() if node.segment == segment}
    routers = {mac for mac in ROUTERS if mac.split(":")[4] == f"{segment:02x}"}
    return nodes | routers | {VIRTUAL_MAC} | ({world.OUTSIDE_MAC} if segment == 0 else set())


def _wrong(frame: Frame, segment: int, more: set[str]) -> str:
    """What is wrong with a frame on a segment, "" for nothing."""
    stations = _stations(segment) | (more - {node.mac for node in world.NODES.values()})
    group = int(frame.dst[:2], 16) & 1
    if frame.kind == "vlan":
        return "is tagged"
    if frame.src not in stations:
        return "comes from nobody's MAC"
    if not group and frame.dst not in stations:
        return "goes to nobody's MAC"
    if group or frame.kind == "arp" or (frame.kind == "icmp6" and frame.ports[0] in NEIGHBOR_MESSAGES):
        return ""
    routed = frame.src.startswith("fe:")
    if (home := _POD_OF.get(frame.source)) is not None:
        if frame.ttl != HOP_LIMIT - 1 - routed:
            return "has another hop limit than a pod's packet"
        if not routed and frame.src in {node.mac for node in world.NODES.values()} - {world.NODES[home].mac}:
            return "comes from a node that the pod is not on"
    if frame.source in _HOSTS and HOP_LIMIT - frame.ttl - routed not in (0, 1):
        return "has another hop limit than a host's packet"
    return _wrong_inside(frame.inner) if frame.inner else ""


def _wrong_inside(inner: Frame) -> str:
    if inner.dst != mac_text(TUNNEL_MAC):
        return "carries a frame to another MAC than a tunnel's end"
    if inner.source in _POD_OF and inner.ttl != HOP_LIMIT - 1:
        return "carries a packet with another hop limit than a pod's"
    return "" if inner.kind in ("icmp", "icmp6", "tcp", "udp") else "carries something else than IP"
