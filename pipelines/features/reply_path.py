"""Tables learn_reply, label_reply and reply_path: the way back to clients beyond the cluster.

Replies leave by the uplink, to the MAC that the client's packets came from last: its own, or that of whichever
router brought them. So a router may fail over, or a client move, in the middle of a connection, and the next
packet that comes in turns the replies around. No neighbour is asked, and what the controller believes of routers
(`egress`) is another matter: it decides where connections of the cluster go out.

A connection remembers the MAC of its first packet (ct_label). With `reply_path: learn` every request also learns a
flow for its client's address in table reply_path, which wins. Those flows have a limit, and beyond it a learn
changes nothing at all, not even a flow that is there; LEARNED says how it went. A connection whose client was not
learned writes the MAC into its label again with every request, and its replies look nowhere else. `reply_path:
label` is the same with a limit of none. The class of the way is stored, never a port's number (rule R4).
"""

from collections.abc import Iterator

from pipelines import fields as f
from pipelines.actions import Action, Ct, Learn, LearnLoad, LearnMatch, Move, SetField, load, move
from pipelines.feature import Feature, unit
from pipelines.fields import Egress, Entered, ct_state
from pipelines.flow import Flow
from pipelines.ids import learned_cookie
from pipelines.model import Kind, ReplyPath, Settings
from pipelines.tables import EGRESS, LABEL_REPLY, LEARN_REPLY, REPLY_PATH, ROUTE, goto, resubmit
from pipelines.unit import ScopeKind, Unit
from pipelines.view import FleetView

NUMBER = 40
_REPLY = ct_state("+rpl+trk")
_NO_ERROR = ct_state("-rel+trk")  # an ICMP error comes from somebody on the way, not from the client


def fixed_flows(settings: Settings, view: FleetView) -> Unit:
    """Requests from clients outside the cluster, and the replies to them."""
    del view
    learning = _learning(settings) if settings.reply_path is ReplyPath.LEARN else ()
    return unit([*learning, *_labelling(), *back(150)])


def _learning(settings: Settings) -> Iterator[Flow]:
    for family in (4, 6):
        learn = Learn(
            REPLY_PATH.id,
            learned_cookie(NUMBER, str(family)),  # with one cookie for both the limit would be one, too
            (
                LearnMatch(f.ETH_TYPE, f.ETH[family].value),
                LearnMatch(f.IP_DST[family], f.IP_SRC[family]),
                LearnLoad(f.ETH_DST, f.CLIENT_MAC),
                LearnLoad(f.EGRESS, Egress.UPLINK),
            ),
            priority=100,
            idle_timeout=settings.reply_idle_timeout,
            hard_timeout=settings.reply_hard_timeout,
            limit=settings.reply_limit,
            result=f.LEARNED,
            delete_learned=True,
        )
        yield LEARN_REPLY.flow(100, (f.ETH[family], f.OUTSIDE.eq(1), _NO_ERROR), learn)


def _labelling() -> Iterator[Flow]:
    """Connections that are known already: the first packet's commit remembers both anyway."""
    known = f.OUTSIDE.eq(1), f.CT_ENTERED_BY.eq(Entered.UPLINK), _NO_ERROR
    for family in (4, 6):
        request = (f.ETH[family], *known)
        newest = move(f.CLIENT_MAC, f.CT_CLIENT_MAC), load(f.CT_LEARNED, 0)
        yield LABEL_REPLY.flow(110, (*request, f.LEARNED.eq(0)), _commit(*newest))
        yield LABEL_REPLY.flow(100, (*request, f.CT_LEARNED.eq(0)), _commit(load(f.CT_LEARNED, 1)))


def _commit(*facts: SetField | Move) -> Ct:
    return Ct(f.SERVICE_ZONE, ROUTE.id, commit=True, exec=facts)


def back(priority: int, *conditions: f.Item) -> Iterator[Flow]:
    """Replies to whom came by the uplink go where it was seen last; two flows, of `priority` and one more."""
    reply = (_REPLY, f.CT_ENTERED_BY.eq(Entered.UPLINK), *conditions)
    way: tuple[Action, ...] = move(f.CT_CLIENT_MAC, f.ETH_DST), load(f.EGRESS, Egress.UPLINK)
    yield ROUTE.flow(priority, reply, *way, goto(EGRESS))
    yield ROUTE.flow(priority + 1, (*reply, f.CT_LEARNED.eq(1)), *way, resubmit(REPLY_PATH), goto(EGRESS))


FEATURES = (Feature("reply_path", NUMBER, ScopeKind.FLEET, Kind.SETTINGS, fixed_flows),)
