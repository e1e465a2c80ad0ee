"""Table egress: an egress class becomes MACs, a hop less where this switch is the router, and a port."""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import LOCAL_IN_REGISTER, Action, DecTtl, load
from pipelines.derived import Derived, NodeNetwork
from pipelines.feature import Feature, unit
from pipelines.fields import Egress, Entered
from pipelines.flow import Flow
from pipelines.tables import CT_COMMIT, EGRESS, goto
from pipelines.unit import ScopeKind, Unit
from pipelines.view import NodeView

# What the host sends was routed by the host; what it will receive it counts itself.
_ROUTED_HERE = (Entered.POD, Entered.UPLINK, Entered.TUNNEL)


def node_egress(network: NodeNetwork, view: NodeView) -> Unit:
    """Routed packets, by class."""
    del network
    gateway, uplink, local = view.gateway, view.uplink, view.local
    flows: list[Flow] = []  # a port that is missing takes its own classes away, no others
    if gateway:
        flows += _routed(Egress.POD, load(f.ETH_SRC, gateway.mac))
        flows += _plain(Egress.GATEWAY, load(f.ETH_DST, gateway.mac), load(f.OUT_PORT, gateway.number))
    if uplink:
        flows += _routed(Egress.UPLINK, load(f.ETH_SRC, uplink.mac), load(f.OUT_PORT, uplink.number))
    if local:
        flows += _plain(Egress.LOCAL, load(f.ETH_DST, local.mac), load(f.OUT_PORT, LOCAL_IN_REGISTER))
    return unit(flows)


def _plain(egress: Egress, *actions: Action) -> Iterator[Flow]:
    yield EGRESS.flow(100, (f.EGRESS.eq(egress),), *actions, goto(CT_COMMIT))


def _routed(egress: Egress, *actions: Action) -> Iterator[Flow]:
    yield from _plain(egress, *actions)
    for entered in _ROUTED_HERE:
        for eth_type in (f.IP4, f.IP6):
            conditions = (f.EGRESS.eq(egress), f.ENTERED_BY.eq(entered), eth_type)
            yield EGRESS.flow(110, conditions, DecTtl(), *actions, goto(CT_COMMIT))


FEATURES = (Feature("egress", 25, ScopeKind.NODE, Derived.NODE_NETWORK, node_egress),)
