"""`signalbox trace`: the way of a packet through one node's switch, computed from manifests, with no switch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from apps import offline, packet_words, settings, trace_entry
from apps.commands import output
from apps.commands.compile import PORT, neighbor_option, say_problems
from apps.trace_words import verdict
from k8s_bridge import manifests
from pipelines import fields as f
from pipelines.addresses import Ip, parse_mac
from pipelines.derived import Derived
from pipelines.flow import Bucket, Flow, FlowKey, Group
from pipelines.interpreter import Outcome, Packet, Switch, tell
from pipelines.interpreter.story import changes, flow_words, packet_text, table_name, value_text
from pipelines.model import Port
from pipelines.unit import UnitKey
from pipelines.view import Facts


class Node(NamedTuple):
    """A node's switch, its ports by name, and what each flow is there for."""

    switch: Switch
    ports: Mapping[str, Port]
    owners: Mapping[FlowKey, UnitKey]
    pods: Mapping[str, str]  # keys by port
    facts: Facts

    def owner(self, flow: Flow) -> UnitKey | None:
        return self.owners.get(flow.key)

    def why(self, flow: Flow) -> str:
        owner = self.owner(flow)
        return "" if owner is None else f"{owner.feature} {owner.key}".rstrip()

    def name_of(self, number: int) -> str:
        """As `--in` takes it, for pods."""
        name = next((name for name, port in self.ports.items() if port.number == number), str(number))
        return f"pod:{self.pods[name]}" if name in self.pods else name


class Chosen:
    """Chooses the `number`th endpoint, counted from 1: of a group, or of the groups that one group chooses among."""

    def __init__(self, number: int) -> None:
        self._number, self._before = number, number - 1  # endpoints to pass over

    def __call__(self, group: Group, packet: Packet) -> Bucket:
        """Raises ValueError when there are not so many."""
        del packet
        there = sum(bucket.weight for bucket in group.buckets)
        for bucket in group.buckets:
            if self._before < bucket.weight:
                return bucket
            self._before -= bucket.weight
        one = "there is 1 endpoint" if there == 1 else f"there are {there} endpoints; choose 1 to {there}"
        raise ValueError(f"--choice {self._number}: {one}")


@click.command("trace", short_help="Show the way of a packet through a node's switch, with no switch.")
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.argument("packet", metavar="PACKET")
@click.option("--node", "name", required=True, metavar="NAME", help="Whose switch.")
@click.option(
    "--in",
    "entry",
    required=True,
    metavar="WHERE",
    help="By which port it enters: pod:NAMESPACE/NAME (or pod:NAME), uplink, host (the bridge's own port), gw0, or "
    "tunnel:ADDRESS of the node that sends it.",
)
@click.option("--src-mac", metavar="MAC", help="Its source MAC; if not given, that of who is there, as the router.")
@click.option("--dst-mac", metavar="MAC", help="Its destination MAC; if not given, the right one.")
@click.option("--size", type=click.IntRange(60, 65535), default=100, show_default=True, help="Bytes, with Ethernet.")
@click.option("--choice", type=click.IntRange(1), default=1, show_default=True, help="Which endpoint is chosen.")
@click.option("--reply", is_flag=True, help="The way of the answer as well.")
@click.option("--port", "ports", multiple=True, type=PORT, metavar="NAME=NUMBER[/MAC]", help="As for `compile`.")
@neighbor_option
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="Settings that change flows.")
@output.output_option
def trace(
    directory: Path, packet: str, name: str, entry: str, src_mac: str | None, dst_mac: str | None, size: int,
    choice: int, reply: bool, ports: tuple[tuple[str, offline.Given], ...], neighbors: tuple[tuple[Ip, int], ...],
    config: str | None, output: str,
) -> None:  # fmt: skip
    """Show by which flows PACKET passes the switch of a node, what they change, and where it leaves.

    Routers' MACs are not in manifests: what would leave by a router leaves by gw0 here, unless --neighbor tells it.

    PACKET is the first one of a connection, as `tcp,10.10.1.10:40000→10.96.0.80:80`; `->` will do, IPv6 addresses
    with a port stand in brackets, and icmp is an echo request.
    """
    try:
        chosen = settings.load(config, {"source": str(directory)}).fabric_settings()
        reading = manifests.read(directory)
        compiled = offline.compile_node(reading.values, chosen, name, dict(ports), dict(neighbors))
        node = _node(compiled, choice)
        parsed = packet_words.parse(packet)
        asked = trace_entry.entering(name, compiled.ports, node.facts, entry, parsed)
        asked = msgspec.structs.replace(asked, length=size)
        macs = {field: parse_mac(mac) for field, mac in ((f.ETH_SRC, src_mac), (f.ETH_DST, dst_mac)) if mac}
        asked = asked.having(macs)
        outcome = node.switch.receive(asked)
    except (settings.ConfigError, offline.Unknown, ValueError) as error:
        raise click.ClickException(str(error)) from error
    say_problems(directory, reading, compiled)
    answers = [_answered(node, *sent) for sent in outcome.sent] if reply else []
    if output == "json":
        _json(node, asked, outcome, answers)
        return
    _text(node, asked, outcome)
    for answered, found in answers:
        click.echo("\nThe answer:")
        _text(node, answered, found)


def _node(compiled: offline.Offline, choice: int) -> Node:
    found = [(key, unit) for key, unit in compiled.compiler.units.items() if key.scope in compiled.scopes]
    flows = [flow for _, unit in found for flow in unit.flows]
    groups = [group for _, unit in found for group in unit.groups]

    switch = Switch(flows, groups, [port.number for port in compiled.ports.values()], Chosen(choice))
    owners = {flow.key: key for key, unit in found for flow in unit.flows}
    facts = compiled.compiler.facts
    pods = {pod.port: pod.key for pod in facts.peek(Derived.LOCAL_POD).values()}
    return Node(switch, compiled.ports, owners, pods, facts)


def _answered(node: Node, port: int, sent: Packet) -> tuple[Packet, Outcome]:
    """The answer of whoever got it, by the port where it left."""
    back = {f.IN_PORT: port, f.ETH_SRC: sent[f.ETH_DST], f.ETH_DST: sent[f.ETH_SRC]}
    for family, outer in f.TUNNEL_DST.items():
        back |= {f.TUNNEL_SRC[family]: sent[outer], outer: 0}
    if port == node.ports["gw0"].number:  # its host answers as it would to others: by its own route
        back[f.ETH_DST] = node.ports["gw0"].mac
    answer = packet_words.answer(sent).having(back)
    return answer, node.switch.receive(answer)


def _text(node: Node, asked: Packet, outcome: Outcome) -> None:
    click.echo(f"by {node.name_of(asked[f.IN_PORT])}: {packet_text(asked)}")
    lines = list(tell(outcome, node.why, node.name_of))
    found = verdict(outcome, node.owner, node.facts)
    if found.result in ("dropped", "held"):
        lines.pop()  # says the same without the reason
    if found.reason:
        lines.append(str(found))
    click.echo("\n".join(lines))


def _json(node: Node, asked: Packet, outcome: Outcome, answers: list[tuple[Packet, Outcome]]) -> None:
    content = _told(node, asked, outcome)
    if answers:
        content["answers"] = [_told(node, *one) for one in answers]
    output.as_json(content)


def _told(node: Node, asked: Packet, outcome: Outcome) -> dict[str, Any]:
    found = verdict(outcome, node.owner, node.facts)
    steps: list[dict[str, Any]] = []
    for step in outcome.trace:
        if step.action is None:
            why = None if step.flow is None else node.owners.get(step.flow.key)
            steps.append(
                {
                    "table": table_name(step.table),
                    "depth": step.depth,
                    "flow": flow_words(step.flow) if step.flow else None,
                    "feature": why and why.feature,
                    "object": why and why.key,
                    "changes": [],
                }
            )
        else:
            owner = next((one for one in reversed(steps) if one["table"] == table_name(step.table)), steps[-1])
            owner["changes"] += [{"field": field, "from": old, "to": new} for field, old, new in changes(step)]
    return {
        "in": node.name_of(asked[f.IN_PORT]),
        "packet": _values(asked),
        "steps": steps,
        "out": [{"port": node.name_of(port), "packet": _values(packet)} for port, packet in outcome.sent],
        "to_controller": [_values(message.packet) for message in outcome.to_controller],
        "held": outcome.held,
        "result": found.result,
        "reason": found.reason,
    }


def _values(packet: Packet) -> dict[str, str]:
    return {field.name: value_text(field, value) for field, value in packet.headers}
