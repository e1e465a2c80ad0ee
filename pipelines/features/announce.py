"""Tables arp and nd again: external addresses of services, which no kernel holds, are answered for by flows.

On the uplink by one node of the segment, once nobody else was found to have the address. To its own host every
switch answers with the host's own MAC: whatever the host sends to a service is translated here.
"""

from pipelines import fields as f
from pipelines.actions import LOCAL_PORT, Controller, Meter, Output
from pipelines.derived import Announced, Derived, OnLink
from pipelines.feature import Feature, unit
from pipelines.features import neighbors
from pipelines.fields import Entered
from pipelines.ids import NEIGHBOR_METER
from pipelines.tables import ARP, NEIGHBOR_WATCH, resubmit
from pipelines.unit import EMPTY, ScopeKind, Unit
from pipelines.view import NodeView, SegmentView

WATCH, ANSWER = "announce.watch", "announce.answer"  # what the controller does follows from their units
_TO_CONTROLLER = (Meter(NEIGHBOR_METER), Controller(neighbors.WATCHED_BYTES))


def watched(announced: Announced, view: NodeView) -> Unit:
    """What others say about an address that this node is to answer for."""
    del view
    return unit(neighbors.watched(announced.ip))


def answered(announced: Announced, view: NodeView) -> Unit:
    """Questions from the uplink for an address that this node answers for."""
    uplink, ip = view.uplink, announced.ip
    if not announced.claimed or uplink is None:
        return EMPTY
    if ip.family == 6:
        return unit(neighbors.nd_answer(Entered.UPLINK, ip, uplink.mac, *_TO_CONTROLLER))
    by_another = (f.ENTERED_BY.eq(Entered.UPLINK), f.ARP, f.ARP_SPA.eq(ip.value))  # also a question for itself
    heard = ARP.flow(120, by_another, Output(LOCAL_PORT), resubmit(NEIGHBOR_WATCH))
    return unit([*neighbors.arp_answer(Entered.UPLINK, ip, uplink.mac), heard])


def host(on_link: OnLink, view: SegmentView) -> Unit:
    """The host's own questions for such an address, whoever answers for it outside."""
    if view.scope.name != on_link.segment:
        return EMPTY
    answer = neighbors.arp_answer if on_link.ip.family == 4 else neighbors.nd_answer
    return unit(answer(Entered.LOCAL, on_link.ip, None))


FEATURES = (
    Feature(WATCH, 56, ScopeKind.NODE, Derived.ANNOUNCED, watched),
    Feature(ANSWER, 57, ScopeKind.NODE, Derived.ANNOUNCED, answered),
    Feature("announce.host", 58, ScopeKind.SEGMENT, Derived.ON_LINK, host),
)
