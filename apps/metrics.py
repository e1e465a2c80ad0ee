"""The product's figures for Prometheus, read from the running fabric at each scrape: nothing is counted twice."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from apps.answers import not_ready
from apps.node_rows import settings_of
from pipelines.derived import Derived, NodeNetwork
from pipelines.model import Kind, Neighbor, Node, neighbor_key
from pipelines.view import Facts

TYPE = "text/plain; version=0.0.4; charset=utf-8"

SWITCH = ("datapath", "node")
# Per switch: attribute of its row, name, help.
COUNTERS = (
    ("flow_mods_sent", "signalbox_switch_flow_mods_sent", "Flow mods sent on this connection."),
    ("group_mods_sent", "signalbox_switch_group_mods_sent", "Group mods sent on this connection."),
    ("bundles_committed", "signalbox_switch_bundles_committed", "Bundles that the switch committed."),
    ("bytes_sent", "signalbox_switch_bytes_sent", "Bytes sent on this connection."),
    ("audits", "signalbox_switch_audits", "Comparisons with what the switch should hold."),
    ("packet_ins_dropped", "signalbox_switch_packet_ins_dropped", "Packet-ins dropped because too many waited."),
    ("packet_ins_failed", "signalbox_switch_packet_ins_failed", "Packet-ins that could not be handled."),
    ("flows_renewed", "signalbox_switch_learned_flows_renewed", "Learned flows put back for a longer affinity."),
    ("flows_not_renewed", "signalbox_switch_learned_flows_not_renewed", "Learned flows that could not be put back."),
)
GAUGES = (
    ("flows", "signalbox_switch_flows", "Own flows that the switch holds."),
    ("groups", "signalbox_switch_groups", "Own groups that the switch holds."),
    ("revision", "signalbox_switch_revision", "Revision that the switch has committed."),
    ("held_removals", "signalbox_switch_held_removals", "Removals held back until they are confirmed."),
)


class FabricCollector:
    """`fabric`: see `apps.fabric`."""

    def __init__(self, fabric: Any) -> None:
        self._fabric = fabric

    def collect(self) -> Iterator[Metric]:
        yield from self._fabric_metrics()
        yield from self._source_metrics()
        yield from self._neighbor_metrics()
        yield from self._announcement_metrics()
        yield from self._refusal_metrics()
        yield from self._switch_metrics()

    def _fabric_metrics(self) -> Iterator[Metric]:
        fabric, fleet = self._fabric, self._fabric.fleet
        text = (
            "Whether the source is in sync and the first revision compiled, with no fault that concerns every switch."
        )
        yield _gauge("signalbox_ready", text, not not_ready(fabric, switches_too=False))
        text = "Rules and features that failed for an object: faults of Signalbox, see /v1/problems."
        yield _gauge("signalbox_faults", text, len(fabric.compiler.faults()))
        yield _gauge("signalbox_revision", "Number of the newest revision.", fleet.revision)
        yield _gauge("signalbox_units", "Units of flows that are compiled.", len(fabric.compiler.units))
        yield _gauge("signalbox_units_not_encoded", "Units that could not be encoded.", len(fleet.errors))
        yield _gauge("signalbox_compile_seconds", "Seconds of the last compilation.", fabric.compile_seconds)
        yield _counter("signalbox_compilations", "Compilations since the start.", fabric.compilations)
        yield _counter("signalbox_flows_encoded", "Flows encoded, each once for all switches.", fleet.encoded_flows)
        yield _gauge(
            "signalbox_hub_longest_stall_seconds", "Longest time that one piece of work kept all others.", fabric.stall
        )
        kinds = Counter(problem.kind for problem in fabric.problems())
        yield _labelled("signalbox_problems", "Problems of objects, by kind.", "kind", kinds)

    def _source_metrics(self) -> Iterator[Metric]:
        source = self._fabric.source.status()
        yield _gauge("signalbox_source_synced", "Whether every kind was listed once.", source.synced)
        yield _gauge("signalbox_source_complete", "Whether nothing may be missing from the lists.", source.complete)
        yield _labelled("signalbox_source_objects", "Objects by kind, unusable ones included.", "kind", source.counts)
        yield _gauge("signalbox_source_held_objects", "Removals of objects held back.", len(source.held))
        if source.last_event_age is not None:
            text = "Seconds since the source heard anything."
            yield _gauge("signalbox_source_last_event_age_seconds", text, source.last_event_age)

    def _neighbor_metrics(self) -> Iterator[Metric]:
        facts, neighbors = self._fabric.compiler.facts, getattr(self._fabric, "neighbors", None)
        by_source = Counter(network.mac.source if network.mac else "unknown" for network in _networks(facts))
        yield _labelled("signalbox_peer_macs", "Nodes, by where the MAC of their uplink is from.", "source", by_source)
        family = GaugeMetricFamily(
            "signalbox_neighbors", "Addresses whose MAC has to be asked for.", labels=["kind", "state"]
        )
        for (kind, state), count in sorted(Counter(_asked(facts)).items()):
            family.add_metric([kind, state], count)
        yield family
        if neighbors is not None:
            yield _counter("signalbox_neighbor_questions", "Questions by ARP and ND that were sent.", neighbors.asked)
            yield _counter("signalbox_neighbor_answers", "Messages about watched addresses.", neighbors.heard)
            text = "Messages about watched addresses that could not be used."
            yield _counter("signalbox_neighbor_malformed", text, neighbors.malformed)

    def _announcement_metrics(self) -> Iterator[Metric]:
        facts, announcer = self._fabric.compiler.facts, getattr(self._fabric, "announcer", None)
        if announcer is None or not settings_of(facts).announce:
            return
        states = Counter(announcer.row(address)[1] for address in list(facts.peek(Derived.ON_LINK)))
        yield _labelled("signalbox_announced_addresses", "Addresses in pools, by state.", "state", states)
        yield _counter(
            "signalbox_announcements", "Gratuitous ARP and unsolicited advertisements.", announcer.announcements
        )
        yield _counter("signalbox_announcement_probes", "Probes whether an address is free.", announcer.probes)

    def _refusal_metrics(self) -> Iterator[Metric]:
        """What `reject_rate` kept on the switches is not among them."""
        refuser = self._fabric.refuser
        text = "Packets to services answered by a TCP reset or an ICMP error."
        yield _counter("signalbox_refusals", text, refuser.refused)
        text = "Packets to services that had to be refused and could not, or must not, be answered."
        yield _counter("signalbox_refusals_not_answered", text, refuser.ignored)

    def _switch_metrics(self) -> Iterator[Metric]:
        switches = self._fabric.switches
        rows = switches.sessions()
        states = Counter(str(row.state) for row in rows)
        yield _labelled("signalbox_switches", "Connected switches, by state.", "state", states)
        refused = CounterMetricFamily("signalbox_connections_refused", "Connections sent away.", labels=["reason"])
        for reason, count in sorted(switches.refused.items()):
            refused.add_metric([reason], count)
        yield refused
        for attribute, name, text in COUNTERS:
            counter = CounterMetricFamily(name, text, labels=SWITCH)
            for row in rows:
                counter.add_metric(_switch(row), getattr(row, attribute))
            yield counter
        for attribute, name, text in GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=SWITCH)
            for row in rows:
                gauge.add_metric(_switch(row), getattr(row, attribute))
            yield gauge
        yield from _by_kind(rows)

    def text(self) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def _networks(facts: Facts) -> list[NodeNetwork]:
    return list(facts.peek(Derived.NODE_NETWORK).values())


def _asked(facts: Facts) -> Iterator[tuple[str, str]]:
    """Kind and state of every next hop, and of every peer of which nothing better is known."""
    settings, found = settings_of(facts), facts.peek(Kind.NEIGHBOR)
    nodes: list[Node] = list(facts.peek(Kind.NODE).values()) if settings.ask_routers else []
    for node in nodes:
        for ip in node.gateways:
            yield "router", _state(found.get(neighbor_key(node.name, ip)))
    for network in _networks(facts):
        if network.asked:
            yield "peer", _state(found.get(neighbor_key(network.name)))


def _state(found: Neighbor | None) -> str:
    if found is None:
        return "unknown"
    return "known" if found.reachable else "unreachable"


def _by_kind(rows: list[Any]) -> Iterator[Metric]:
    refusals = GaugeMetricFamily("signalbox_switch_units_refused", "Units that the switch refuses.", labels=SWITCH)
    drift = CounterMetricFamily("signalbox_switch_drift", "Differences that audits found.", labels=[*SWITCH, "kind"])
    for row in rows:
        refusals.add_metric(_switch(row), len(row.exceptions))
        for kind, count in sorted(row.drift.items()):
            drift.add_metric([*_switch(row), kind], count)
    yield refusals
    yield drift


def _switch(row: Any) -> tuple[str, str]:
    return f"{row.dpid:016x}", row.node


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))


def _labelled(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([str(key)], value)
    return family
