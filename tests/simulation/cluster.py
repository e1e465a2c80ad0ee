"""The flows of every switch of the world of tests/ovs, compiled in one process: no switch, no controller, no lab."""

import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from apps import settings as configuration
from k8s_bridge import manifests
from lab import manifests as lab_manifests
from lab.plan import Options, Plan, plan
from pipelines.actions import LOCAL_PORT
from pipelines.addresses import parse_ip, parse_mac
from pipelines.compiler import Compiler
from pipelines.derived import Derived
from pipelines.flow import Flow, Group
from pipelines.interpreter import Switch
from pipelines.interpreter.switch import Choose, first_bucket
from pipelines.model import Change, Kind, Neighbor, Port, Settings, neighbor_key, port_key
from tests.ovs import states, world
from tests.ovs.objects import Object
from tests.ovs.states import State

UPLINK, GATEWAY, TUNNEL, FIRST_POD = 1, 2, 3, 10  # port numbers


class Tables(NamedTuple):
    """What one node's switch holds. `ports`: numbers by name."""

    flows: tuple[Flow, ...]
    groups: tuple[Group, ...]
    ports: Mapping[str, int]

    def switch(self, choose: Choose = first_bucket) -> Switch:
        return Switch(self.flows, self.groups, self.ports.values(), choose)


class Cluster(NamedTuple):
    plan: Plan
    compiler: Compiler
    tables: Mapping[str, Tables]  # by node


def settings_of(given: Mapping[str, Any]) -> Settings:
    """As the product reads them from its file."""
    return configuration.load(None, {"source": "none", **given}).fabric_settings()


@lru_cache(maxsize=8)
def in_state(state: State, found: frozenset[str] = frozenset(world.NODES)) -> Cluster:
    """The world in a state of the generated table. `found`: nodes that ARP has found, where it is asked."""
    more = states.LABS[state.tunnel].get("unmasqueraded", ())
    options = Options(tunnel=state.tunnel, unmasqueraded=tuple(more))
    asked = found if state.peers == "neighbor" else frozenset()
    return compiled(world.everything(), settings_of(state.settings), options, found=asked, routers=state.routers)


def compiled(
    objects: Iterable[Object],
    settings: Settings,
    options: Options,
    *,
    found: Collection[str] = (),
    routers: bool = True,
) -> Cluster:
    """`found`: nodes whose MAC ARP has found. `routers`: whether it has found theirs."""
    objects = list(objects)
    laid = plan("simulated", lab_manifests.facts(iter(objects)), options=options)
    with TemporaryDirectory() as directory:
        for number, one in enumerate(objects):
            (Path(directory) / f"{number}.json").write_text(json.dumps(one))
        read = manifests.read(directory)
    assert not read.problems, read.problems
    changes = [Change(Kind.SETTINGS, "", settings)]
    changes += [Change(kind, key, value) for (kind, key), value in read.values.items()]
    ports = {node.name: _ports(laid, node.name) for node in laid.nodes}
    for node in laid.nodes:
        for name, number in ports[node.name].items():
            mac = node.gateway_mac if name == "gw0" else node.mac
            changes.append(Change(Kind.PORT, port_key(node.name, name), Port(number, parse_mac(mac))))
        if node.name in found:
            changes.append(Change(Kind.NEIGHBOR, neighbor_key(node.name), Neighbor(parse_mac(node.mac))))
        if routers:
            mac = laid.segments[node.segment].router_macs[0]
            changes += [
                Change(Kind.NEIGHBOR, neighbor_key(node.name, parse_ip(hop)), Neighbor(parse_mac(mac)))
                for hop in node.gateways
            ]
    compiler = Compiler()
    compiler.run(changes)
    return Cluster(laid, compiler, {name: _tables(compiler, name, own) for name, own in ports.items()})


def _ports(laid: Plan, node: str) -> dict[str, int]:
    uplink = laid.node(node).uplink
    ports = {"LOCAL": LOCAL_PORT, uplink: UPLINK, "gw0": GATEWAY}
    if laid.options.tunnel:
        ports["tun0"] = TUNNEL
    pods = [pod.port for pod in laid.pods if pod.node == node]
    return ports | {port: FIRST_POD + at for at, port in enumerate(pods)}


def _tables(compiler: Compiler, node: str, ports: Mapping[str, int]) -> Tables:
    members = compiler.facts.peek(Derived.MEMBER).values()
    scopes = next(member.scopes for member in members if member.node == node)
    units = [unit for key, unit in compiler.units.items() if key.scope in scopes]
    flows = tuple(flow for unit in units for flow in unit.flows)
    return Tables(flows, tuple(group for unit in units for group in unit.groups), ports)
