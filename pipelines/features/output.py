"""Table output: out by the chosen port, also the one it came by where that is meant; never half translated."""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import IN_PORT_ACTION, Output, OutputPart
from pipelines.feature import Feature, unit
from pipelines.fields import Egress, Entered, Snat, ct_state
from pipelines.flow import Flow
from pipelines.model import Kind, Settings
from pipelines.tables import OUTPUT
from pipelines.unit import ScopeKind, Unit
from pipelines.view import FleetView

_BACK = Output(IN_PORT_ACTION)
_REPLY = ct_state("+rpl+trk")
_SAME_PORT = ((Entered.UPLINK, Egress.UPLINK), (Entered.UPLINK, Egress.ROUTER), (Entered.TUNNEL, Egress.TUNNEL))


def fixed_flows(settings: Settings, view: FleetView) -> Unit:
    """Packets that are ready to leave."""
    del settings, view
    return unit([*_untranslated(), *_back(), OUTPUT.flow(100, (), OutputPart(f.OUT_PORT))])


def _untranslated() -> Iterator[Flow]:
    """Ports exhausted, conntrack full, or no address of this family to translate to."""
    for kind in Snat:
        if kind:
            yield OUTPUT.flow(200, (f.SNAT_KIND.eq(kind), ct_state("-snat")))


def _back() -> Iterator[Flow]:
    """By the port they came in: a client that is its own endpoint, and clients on the uplink of endpoints there."""
    yield OUTPUT.flow(150, (f.SNAT_KIND.eq(Snat.VIRTUAL),), _BACK)
    yield OUTPUT.flow(150, (_REPLY, f.CT_SNAT_KIND.eq(Snat.VIRTUAL)), _BACK)
    for entered, egress in _SAME_PORT:
        same = (f.ENTERED_BY.eq(entered), f.EGRESS.eq(egress))
        yield OUTPUT.flow(140, (*same, f.SERVICE.eq(1)), _BACK)
        yield OUTPUT.flow(140, (*same, _REPLY, f.CT_SERVICE.eq(1)), _BACK)
    local = (f.ENTERED_BY.eq(Entered.LOCAL), f.EGRESS.eq(Egress.LOCAL))
    yield OUTPUT.flow(140, local, _BACK)


FEATURES = (Feature("output", 26, ScopeKind.FLEET, Kind.SETTINGS, fixed_flows),)
