"""What flows that were read back say about peers and next hops.

After a restart the controller knows no live MACs until the peers' own switches have connected, and next hops have
answered. A switch that still carries a route to a peer, or to its router, shows the MAC that was in force: taken as
evidence, it keeps the flow as it is.
"""

from collections.abc import Iterable

from controller.readback import DecodeError, FlowRow, decode_flow
from pipelines.actions import SetField
from pipelines.addresses import BITS, Cidr, Ip
from pipelines.derived import READ_BACK, Derived, NodeNetwork, Router
from pipelines.features import NUMBERS
from pipelines.features.egress import ROUTER_EGRESS
from pipelines.features.neighbors import WATCH_PEERS
from pipelines.features.routes import PEER_ROUTE
from pipelines.fields import ARP_SPA, ETH_DST, ETH_SRC, IP4, IP4_DST, IP6_DST, ND_TARGET
from pipelines.flow import Flow
from pipelines.ids import split_cookie
from pipelines.model import Change, Evidence, Kind, router_evidence_key
from pipelines.view import Facts

_TELLING = (NUMBERS[PEER_ROUTE], NUMBERS[ROUTER_EGRESS], NUMBERS[WATCH_PEERS])
_WATCHED = (ARP_SPA, ND_TARGET)


def macs(node: str, rows: Iterable[FlowRow], facts: Facts) -> list[Change]:
    """The MACs in the routes of a node's switch, for peers and next hops of which no MAC is known otherwise."""
    found: dict[str, int] = {}
    asked: set[str | None] = set()
    for row in rows:
        cookie = split_cookie(row.cookie)
        if cookie is None or cookie.feature not in _TELLING:
            continue
        try:
            flow = decode_flow(row)
        except DecodeError:
            continue  # not as we write it: the audit deals with it
        if cookie.feature == NUMBERS[WATCH_PEERS]:
            asked.add(_holder(flow, facts))
            continue
        mac = _mac(flow)
        key = _peer(flow, facts) if cookie.feature == NUMBERS[PEER_ROUTE] else _router(node, flow, facts)
        if mac is not None and key is not None:
            found[key] = mac
    return [Change(Kind.EVIDENCE, key, Evidence(mac, key in asked)) for key, mac in found.items()]


def outdated(facts: Facts) -> list[Change]:
    """What read-back showed counts only until something better is known: the result must not depend on history."""
    networks, routers = facts.peek(Derived.NODE_NETWORK), facts.peek(Derived.ROUTER)
    gone = []
    for key in facts.peek(Kind.EVIDENCE):
        node, _, family = key.replace(" router ", " ").partition(" ")
        better = routers.get(f"{node} {family}") if family else networks.get(node)
        if better is not None and better.mac is not None and better.mac.source != READ_BACK:
            gone.append(Change(Kind.EVIDENCE, key, None))
    return gone


def _peer(flow: Flow, facts: Facts) -> str | None:
    """The peer that a route leads to, if its MAC is not known otherwise."""
    networks: dict[str, NodeNetwork] = facts.peek(Derived.NODE_NETWORK)
    network = networks.get(_destination(flow, facts) or "")
    return network.name if network is not None and network.mac is None else None


def _destination(flow: Flow, facts: Facts) -> str | None:
    for item in flow.match:
        if item.field not in (IP4_DST, IP6_DST):
            continue
        family = 4 if item.field is IP4_DST else 6
        if item.mask is None:
            name: str | None = facts.peek(Derived.NODE_ADDRESS).get(str(Ip(family, item.value)))
            return name
        length = item.mask.bit_count()
        home = facts.peek(Derived.POD_CIDR).get(str(Cidr(family, item.value, min(length, BITS[family]))))
        return home.node if home else None
    return None


def _holder(flow: Flow, facts: Facts) -> str | None:
    """The node whose address is watched for."""
    ip = next(
        (Ip(4 if item.field is ARP_SPA else 6, item.value) for item in flow.match if item.field in _WATCHED), None
    )
    name: str | None = facts.peek(Derived.NODE_ADDRESS).get(str(ip))
    return name


def _router(node: str, flow: Flow, facts: Facts) -> str | None:
    """The key of what is known about the next hop of the flow's family, if its MAC is not known otherwise."""
    by_uplink = any(isinstance(act, SetField) and act.field is ETH_SRC for act in flow.actions)  # else it is gw0's
    family = 4 if IP4 in flow.match else 6
    router: Router | None = facts.peek(Derived.ROUTER).get(f"{node} {family}")
    return router_evidence_key(node, family) if by_uplink and router is not None and router.mac is None else None


def _mac(flow: Flow) -> int | None:
    return next((act.value for act in flow.actions if isinstance(act, SetField) and act.field is ETH_DST), None)
