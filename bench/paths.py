"""How fast packets are by each way to another node and out of the cluster, beside a floor that decides nothing.

All take turns on the same three switches, in rounds, so that a machine that becomes slower does so for all of them.
Ratios are those of neighbours in one round.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from msgspec import Struct, field

from bench import layouts, streams
from bench.figures import Comparison, Report, Series, Verdict, number, percentile
from bench.layouts import Layout
from bench.options import Options
from lab import netns
from lab.cluster import Lab
from lab.netns import LabError
from lab.plan import STANDARD_MTU
from lab.switch import BRIDGE, GATEWAY, TUNNEL
from pipelines.model import EgressMode, Settings, TrafficMode, Tunnel
from pipelines.mtu import pod_mtu

PART = "paths"
DIRECT_TO_GATEWAY, DIRECT_TO_FLOOR = 1.4, 0.95  # aims for throughput
MANIFESTS = Path(__file__).parents[1] / "examples/demo"
CLIENT = "a"
NODE = "n1"  # where it is


class Way(NamedTuple):
    """From pod a to `server`. `by`: the port of n1 that carries it, beside the uplink or in its place."""

    name: str
    server: str
    layout: Layout
    by: str = ""
    mtu: int = STANDARD_MTU  # of the pods


class Measured(Struct):
    """One value for each round."""

    tcp: list[float] = field(default_factory=list)  # Mb/s
    gigabit: list[float] = field(default_factory=list)  # processor seconds of the switches for one
    udp: list[float] = field(default_factory=list)  # datagrams/s
    datagram: list[float] = field(default_factory=list)  # processor µs of the switches for one
    middle: list[float] = field(default_factory=list)  # µs
    late: list[float] = field(default_factory=list)
    cached: list[float] = field(default_factory=list)


class Pair(NamedTuple):
    """Two ways that are compared."""

    ours: str
    peer: str


def measure(options: Options, directory: Path) -> Report:
    netns.run(
        ["mount", "-t", "tmpfs", "tmpfs", "/run"]
    )  # of this enclosure: the lab's namespaces have no names outside
    with Lab("paths", MANIFESTS, state=directory / "lab") as lab:
        layouts.prepare(lab)
        ways = _ways(lab)
        for place in {way.server for way in ways}:
            streams.serve(lab, place)
        measured = {way.name: Measured() for way in ways}
        for turn in range(options.repetitions):
            for way in ways if turn % 2 == 0 else ways[::-1]:
                _one(lab, way, measured[way.name], options.seconds)
    return _report(ways, measured)


def _ways(lab: Lab) -> list[Way]:
    """Those that are compared stand side by side."""

    def layout(name: str, settings: Settings) -> Layout:
        return layouts.compiled(lab, MANIFESTS, name, settings)

    known = layout("all known", Settings())
    unknown = layout("no peer's MAC known", Settings(mac_sources=()))
    tunnel = layout("encap", Settings(traffic_mode=TrafficMode.ENCAP))
    egress = layout("egress: direct", Settings(egress=EgressMode.DIRECT))
    return [
        Way(GATEWAY_WAY, "c", unknown, GATEWAY),
        Way(DIRECT, "c", known),
        Way(FLOOR, "c", layouts.cross_connect(lab, CLIENT, "c")),
        Way(TRACKED, "c", layouts.cross_connect(lab, CLIENT, "c", tracked=True)),
        Way(TUNNEL_WAY, "c", tunnel, TUNNEL, pod_mtu(STANDARD_MTU, TrafficMode.ENCAP, Tunnel.GENEVE, 4)),
        Way(ROUTER, "d", known),
        Way(MASQUERADED, "remote", known, GATEWAY),
        Way(EGRESS_DIRECT, "remote", egress),
    ]


DIRECT, FLOOR, TRACKED = "direct", "static cross-connect", "the same with conntrack"
GATEWAY_WAY, TUNNEL_WAY = "gw0 and host", "tunnel (Geneve)"
ROUTER = "by a router"
MASQUERADED, EGRESS_DIRECT = "outside by gw0", "outside, egress direct"
PAIRS = (
    Pair(DIRECT, GATEWAY_WAY),
    Pair(DIRECT, FLOOR),
    Pair(DIRECT, TRACKED),
    Pair(TUNNEL_WAY, DIRECT),
    Pair(ROUTER, DIRECT),
    Pair(EGRESS_DIRECT, MASQUERADED),
)


def _one(lab: Lab, way: Way, into: Measured, seconds: float) -> None:
    address = _address(lab, way.server)
    layouts.write(lab, way.layout)
    for pod in (CLIENT, "c"):
        lab.set_pod_mtu(pod, way.mtu)
    streams.await_way(lab, CLIENT, address)
    before = _carried(lab)
    stream = streams.tcp(lab, CLIENT, address, seconds)
    into.cached.append(float(sum(streams.cached(lab, node.name) for node in lab.plan.nodes)))
    _check(way, {port: count - before[port] for port, count in _carried(lab).items()})
    if not stream.amount:
        raise LabError(f"{way.name}: nothing arrived")
    into.tcp.append(stream.by_second)
    into.gigabit.append(1000 * stream.processor / stream.amount)
    small = streams.udp(lab, CLIENT, address, seconds)
    into.udp.append(small.by_second)
    into.datagram.append(1e6 * small.processor / max(1, small.amount))
    times = streams.round_trips(lab, CLIENT, address, seconds)
    into.middle.append(median(times))
    into.late.append(percentile(times, 99))


def _carried(lab: Lab) -> dict[str, int]:
    """Packets that n1's switch has sent so far, by port."""
    lab.appctl(NODE, "revalidator/wait")  # those of tun0 are counted with the decisions that led there
    return {port: counters.sent for port, counters in lab.port_counters(NODE).items() if port != BRIDGE}


def _check(way: Way, sent: dict[str, int]) -> None:
    """A figure of another way would be worth nothing."""
    uplink = sum(sent.values()) - sent[GATEWAY] - sent[TUNNEL]
    for port in (GATEWAY, TUNNEL):
        if (sent[port] > uplink / 4) != (way.by == port):
            raise LabError(f"{way.name}: {sent[port]} packets went to {port}, and {uplink} to other ports")


def _address(lab: Lab, server: str) -> str:
    station = lab.plan.remote if server == "remote" else lab.pod(server).station
    return next(text.partition("/")[0] for text in station.addresses if ":" not in text)


# --- the report ---------------------------------------------------------------------------------------------

FIGURES: tuple[tuple[str, str, Callable[[Measured], list[float]]], ...] = (
    ("TCP", "Mb/s", lambda m: m.tcp),
    ("small datagrams", "/s", lambda m: m.udp),
    ("round trip", "µs", lambda m: m.middle),
    ("round trip, 99th percentile", "µs", lambda m: m.late),
    ("processor for a gigabit", "s", lambda m: m.gigabit),
    ("processor for a datagram", "µs", lambda m: m.datagram),
    ("cached decisions", "", lambda m: m.cached),
)


def _report(ways: list[Way], measured: dict[str, Measured]) -> Report:
    rows = []
    for what, unit, values in FIGURES:
        for ours, peer in PAIRS:
            mine = Series(f"{what}: {ours}", unit, values(measured[ours]))
            rows.append(Comparison(PART, mine, Series(peer, unit, values(measured[peer]))))
    by_name = {way.name: way.layout.flows for way in ways}
    flows = [Series(f"flows and groups of a switch: {name}", "", [by_name[name]]) for name in (DIRECT, FLOOR)]
    rows.append(Comparison(PART, flows[0], flows[1]))
    verdicts = [
        _verdict(measured, Pair(DIRECT, GATEWAY_WAY), DIRECT_TO_GATEWAY),
        _verdict(measured, Pair(DIRECT, FLOOR), DIRECT_TO_FLOOR),
    ]
    return Report(rows, verdicts)


def _verdict(measured: dict[str, Measured], pair: Pair, aim: float) -> Verdict:
    """By the ratio in each round, of which the middle one counts."""
    ratios = [ours / peer for ours, peer in zip(measured[pair.ours].tcp, measured[pair.peer].tcp, strict=True)]
    spread = f"{number(min(ratios))}–{number(max(ratios))}"
    text = f"TCP: {pair.ours} is at least {aim} of {pair.peer} (rounds: {median(ratios):.2f}, {spread})"
    return Verdict(text, median(ratios) >= aim)
