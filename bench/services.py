"""Services: how many flows one takes, and how fast it answers, beside OVN on the same Open vSwitch."""

from collections import defaultdict
from pathlib import Path

from msgspec import Struct, field

from bench.cluster import Cluster, changes
from bench.figures import Comparison, Report, Series, Verdict
from bench.kinds import Kinds
from bench.openvswitch import INTEGRATION, OpenVSwitch
from bench.options import Options
from bench.ovn import Ovn, balancers, no_balancers
from bench.service_lab import REPLY_PATHS, ServiceLab, write_manifests
from lab import netns
from lab.cluster import Lab
from pipelines.compiler import Compiler
from pipelines.derived import Derived

PART = "services"
SOME = 20  # services, to say what one of them takes
MANY = 10_000  # clients outside
WAYS = [(what, entrance) for entrance in ("ClusterIP", "NodePort") for what in ("connections", "requests")]
UNIT = {"connections": "new connections", "requests": "requests"}


def measure(options: Options, directory: Path) -> Report:
    netns.run(
        ["mount", "-t", "tmpfs", "tmpfs", "/run"]
    )  # of this enclosure: the lab's namespaces have no names outside
    rows = _flows(options, directory)
    manifests = write_manifests(directory / "manifests")
    with Lab("services", manifests, state=directory / "lab") as lab:
        there = ServiceLab(lab, manifests, options.ovn)
        answered, verdicts = _beside_ovn(there, options)
        return Report([*rows, *answered, *_reply_paths(there, options)], verdicts)


# --- flows --------------------------------------------------------------------------------------------------


def _flows(options: Options, directory: Path) -> list[Comparison]:
    """Of one more service on one node's switch, by kind."""
    theirs = _flows_in_ovn(options, directory) if options.ovn else {}
    rows = []
    for kinds in Kinds:
        empty, full = (_ours(_cluster(options, kinds, services)) for services in (0, SOME))
        ours = Series(f"flows and groups of a service, {kinds}", "", [(full - empty) / SOME])
        peer = Series("OVN", "", [theirs[kinds]]) if theirs else None
        rows.append(Comparison(PART, ours, peer))
    return rows


def _cluster(options: Options, kinds: Kinds, services: int) -> Cluster:
    return Cluster(services, options.endpoints, options.switches, kinds)


def _ours(cluster: Cluster) -> int:
    compiler = Compiler()
    compiler.run(changes(cluster.objects()))
    member = compiler.facts.peek(Derived.MEMBER)[min(compiler.facts.peek(Derived.MEMBER))]
    units = [unit for key, unit in compiler.units.items() if key.scope in member.scopes]
    return sum(len(unit.flows) + len(unit.groups) for unit in units)


def _flows_in_ovn(options: Options, directory: Path) -> dict[Kinds, float]:
    home = directory / "flows"
    home.mkdir()
    ovs = OpenVSwitch(home)
    ovn = Ovn(ovs)
    found = {}
    for kinds in Kinds:
        before = _held(ovs)
        cluster = _cluster(options, kinds, SOME)
        ovn.apply(balancers(cluster))
        found[kinds] = (_held(ovs) - before) / SOME
        ovn.apply(no_balancers(cluster))
    return found


def _held(ovs: OpenVSwitch) -> int:
    groups = ovs.ofctl("dump-groups", INTEGRATION).count("group_id=")
    flows = ovs.ofctl("dump-aggregate", INTEGRATION).rpartition("flow_count=")[2]
    return groups + int(flows)


# --- traffic ------------------------------------------------------------------------------------------------


class Measured(Struct):
    """One value for each round."""

    by_second: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def _beside_ovn(there: ServiceLab, options: Options) -> tuple[list[Comparison], list[Verdict]]:
    found: dict[tuple[str, str, str], Measured] = defaultdict(Measured)
    peers = {"ours": there.use_ours, **({"OVN": there.use_ovn} if there.ovn else {})}
    for turn in range(options.repetitions):
        for peer, use in list(peers.items())[:: 1 if turn % 2 == 0 else -1]:
            use()
            for what, entrance in WAYS:
                served = there.ask(what, entrance, options.seconds)
                found[peer, what, entrance].by_second.append(served.by_second)
                found[peer, what, entrance].processor.append(served.processor)
    rows, verdicts = [], []
    for what, entrance in WAYS:
        ours, theirs = found["ours", what, entrance], found["OVN", what, entrance]
        rate = Series(f"{UNIT[what]}, {entrance}", "/s", ours.by_second)
        spent = Series(f"switch's processor for one of the {what}, {entrance}", "µs", ours.processor)
        beside = Series("OVN", "/s", theirs.by_second) if there.ovn else None
        rows.append(Comparison(PART, rate, beside))
        rows.append(Comparison(PART, spent, Series("OVN", "µs", theirs.processor) if there.ovn else None))
        if beside is not None:
            met = rate.median >= beside.median
            verdicts.append(Verdict(f"{UNIT[what]} by {entrance} are no fewer than OVN's", met))
    return rows, verdicts


def _reply_paths(there: ServiceLab, options: Options) -> list[Comparison]:
    """New connections by NodePort from one client and from many, by where their MAC is kept."""
    found: dict[tuple[str, int, str], Measured] = defaultdict(Measured)
    crossed = [("connections", 1), ("connections", MANY), ("requests", 1)]
    for _ in range(options.repetitions):
        for name in REPLY_PATHS:
            for what, clients in crossed:
                there.use_ours(name)
                served = there.ask(what, "NodePort", options.seconds, clients)
                found[what, clients, name].by_second.append(served.by_second)
                found[what, clients, name].processor.append(served.processor)
    rows = []
    for what, clients in crossed:
        for name in list(REPLY_PATHS)[:-1]:
            ours, label = found[what, clients, name], found[what, clients, "label"]
            words = f"{UNIT[what]}, {clients:,} client{'s' if clients > 1 else ''}, reply_path {name}"
            rows.append(
                Comparison(PART, Series(words, "/s", ours.by_second), Series("reply_path label", "/s", label.by_second))
            )
            rows.append(
                Comparison(
                    PART,
                    Series("  switch's processor for one", "µs", ours.processor),
                    Series("reply_path label", "µs", label.processor),
                )
            )
    return rows
