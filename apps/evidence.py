"""What flows that were read back say about peers.

After a restart the controller knows no live MACs until the peers' own switches have connected. A switch that
still carries a route to a peer shows the MAC that was in force: taken as evidence, it keeps the flow as it is.
"""

from collections.abc import Iterable

from controller.readback import DecodeError, FlowRow, decode_flow
from pipelines.actions import SetField
from pipelines.addresses import BITS, Cidr, Ip
from pipelines.derived import Derived, NodeNetwork
from pipelines.features import NUMBERS
from pipelines.features.routes import PEER_ROUTE
from pipelines.fields import ETH_DST, IP4_DST, IP6_DST
from pipelines.flow import Flow
from pipelines.ids import split_cookie
from pipelines.model import Change, Evidence, Kind
from pipelines.view import Facts


def peer_macs(rows: Iterable[FlowRow], facts: Facts) -> list[Change]:
    """The MACs in a switch's own peer routes, for nodes of which no MAC is known otherwise."""
    found: dict[str, Change] = {}
    for row in rows:
        cookie = split_cookie(row.cookie)
        if cookie is None or cookie.feature != NUMBERS[PEER_ROUTE]:
            continue
        try:
            flow = decode_flow(row)
        except DecodeError:
            continue  # not as we write it: the audit deals with it
        network, mac = _peer(flow, facts), _mac(flow)
        if mac is not None and network is not None and network.mac is None:
            found[network.name] = Change(Kind.EVIDENCE, network.name, Evidence(mac))
    return list(found.values())


def _peer(flow: Flow, facts: Facts) -> NodeNetwork | None:
    networks: dict[str, NodeNetwork] = facts.peek(Derived.NODE_NETWORK)
    for item in flow.match:
        if item.field not in (IP4_DST, IP6_DST):
            continue
        family = 4 if item.field is IP4_DST else 6
        if item.mask is None:
            node = facts.peek(Derived.NODE_ADDRESS).get(str(Ip(family, item.value)))
        else:
            length = item.mask.bit_count()
            home = facts.peek(Derived.POD_CIDR).get(str(Cidr(family, item.value, min(length, BITS[family]))))
            node = home.node if home else None
        return networks.get(node) if node else None
    return None


def _mac(flow: Flow) -> int | None:
    return next((act.value for act in flow.actions if isinstance(act, SetField) and act.field is ETH_DST), None)
