"""The tables of the pipeline, declared once and constant whatever is configured.

Each says what happens in it, what its flows may match and set, and where packets may go: `TABLE.flow(...)` is the
only way features make flows. docs/pipeline.md is generated from here.
"""

from pipelines import fields as f
from pipelines.actions import Goto, Resubmit
from pipelines.fields import Part
from pipelines.table import DECLARED, Declared, Stage, Table


def _these(*fields: Declared) -> frozenset[Declared]:
    return frozenset(fields)


_ETHERNET = _these(f.ETH_TYPE, f.ETH_SRC, f.ETH_DST)
_IP = _these(f.ETH_TYPE, f.IP4_SRC, f.IP4_DST, f.IP6_SRC, f.IP6_DST, f.IP_PROTO)
_ICMP6 = _these(f.IP_PROTO, f.ICMP6_TYPE, f.ETH_TYPE)
_PORTS = _these(f.TCP_DST, f.UDP_DST, f.SCTP_DST)
_CT = _these(f.CT_STATE, f.CT_ENTERED_BY, f.CT_SERVICE, f.CT_LEARNED, f.CT_SNAT_KIND, f.CT_CONNECTION_FACTS)
_ARP = _these(f.ETH_TYPE, f.ARP_OP, f.ARP_SPA, f.ARP_TPA, f.ARP_SHA, f.ARP_THA)
_ND = _ICMP6 | _these(f.IP6_SRC, f.IP6_DST, f.ND_TARGET, f.ND_SLL, f.ND_TLL)
_TURNED = _these(
    *(f.IP4_SRC, f.IP4_DST, f.IP6_SRC, f.IP6_DST, f.TCP_SRC, f.TCP_DST, f.UDP_SRC, f.UDP_DST),
    *(f.KEPT_IP4, f.KEPT_IP6, f.KEPT_PORT),
)
_REMEMBER = _these(f.CT_CONNECTION_FACTS, f.CT_CLIENT_MAC)

TABLES: dict[str, Table] = {}
BY_ID = DECLARED


def _table(
    number: int,
    name: str,
    stage: Stage,
    purpose: str,
    *,
    matches: frozenset[Declared] = frozenset(),
    sets: frozenset[Declared] = frozenset(),
    goes: tuple[int, ...] = (),
    calls: tuple[int, ...] = (),
    miss: int | None = None,
    learns: tuple[int, ...] = (),
) -> Table:
    reach = goes if miss is None or miss in goes else (*goes, miss)
    table = Table(number, name, stage, purpose, matches, sets, reach, calls, miss, learns)
    TABLES[name] = BY_ID[number] = table
    return table


CLASSIFY = _table(
    0,
    "classify",
    Stage.VALIDATION,
    "By port: how the packet entered. Frames on the uplink for another MAC are dropped; multicast, VLAN-tagged "
    "frames and outer packets of tunnels pass between uplink and host; ARP and neighbour discovery leave to their "
    "own tables.",
    matches=_these(f.IN_PORT, f.VLAN_TCI, f.UDP_DST) | _ETHERNET | _IP | _ICMP6,
    sets=_these(f.ENTERED_BY, f.OWN_SOURCE, f.CLIENT_MAC),
    goes=(5, 6, 10, 12, 20),
)
SPOOF_GUARD = _table(
    5,
    "spoof_guard",
    Stage.VALIDATION,
    "A pod sends only with its own MAC and addresses, in Ethernet, ARP, neighbour discovery, IPv4 and IPv6; "
    "no VLAN tags, router advertisements, redirects or DHCP server replies from pods.",
    matches=_these(f.IN_PORT, f.VLAN_TCI, f.ENTERED_BY, f.UDP_SRC) | _ETHERNET | _IP | _ARP | _ND,
    goes=(10, 12, 20),
)
TUNNEL_GUARD = _table(
    6,
    "tunnel_guard",
    Stage.VALIDATION,
    "From the tunnel only IP of other nodes of the cluster comes in.",
    matches=_these(f.VLAN_TCI, f.TUN_SRC, f.TUN_IP6_SRC) | _ICMP6,
    goes=(20,),
)
ARP = _table(
    10,
    "arp",
    Stage.NEIGHBORS,
    "Requests and replies are switched by target address to the pod, to gw0 or to the host, whose kernels answer; "
    "the SNAT address is answered here. Pods and the uplink never see each other's ARP.",
    matches=_these(f.ENTERED_BY) | _ARP,
    sets=_these(f.ETH_SRC, f.ETH_DST, f.ARP_OP, f.ARP_SPA, f.ARP_TPA, f.ARP_SHA, f.ARP_THA),
    calls=(14,),
)
ND = _table(
    12,
    "nd",
    Stage.NEIGHBORS,
    "The same for IPv6: solicitations by target, advertisements by destination.",
    matches=_these(f.ENTERED_BY) | _ND,
    sets=_these(f.ICMP6_TYPE, f.ICMP6_CODE),
    goes=(13,),
    calls=(14,),
)
ND_REPLY = _table(
    13,
    "nd_reply",
    Stage.NEIGHBORS,
    "Second half of a neighbour advertisement made by flows: its fields may be set only once its type is.",
    matches=_these(f.ENTERED_BY) | _ND,
    sets=_these(
        f.ETH_SRC,
        f.ETH_DST,
        f.IP6_SRC,
        f.IP6_DST,
        f.IP_TTL,
        f.ND_TARGET,
        f.ND_TLL,
        f.ND_OPTIONS_TYPE,
        f.ND_RESERVED,
    ),
)
NEIGHBOR_WATCH = _table(
    14,
    "neighbor_watch",
    Stage.NEIGHBORS,
    "Called by arp and nd for messages from the uplink: what the addresses say that the controller asks for.",
    matches=_ARP | _ND,
)
DESTINATION = _table(
    20,
    "destination",
    Stage.PREROUTING,
    "Per node: which destinations are this node's own addresses, so that service flows can be shared by all nodes. "
    "From the uplink no packet is taken whose source is an address of this node's host, or no station's.",
    matches=_these(f.ENTERED_BY) | _IP,
    sets=_these(f.TO_NODE, f.NODE_PORT),
    miss=24,
)
UNSNAT = _table(
    24,
    "unsnat",
    Stage.CONNTRACK,
    "Packets to a SNAT or virtual address get their real destination back first, whatever port they came by.",
    matches=_IP | _PORTS | _these(f.TO_NODE, f.ICMP_TYPE, f.ICMP6_TYPE),
    goes=(30,),
    miss=30,
)
CONNTRACK = _table(
    30,
    "conntrack",
    Stage.CONNTRACK,
    "Connection tracking for everything that a service may concern. Host traffic to and from other addresses "
    "passes untracked, and so does what the host forwards for a pod, which was tracked when the pod sent it.",
    matches=_these(f.ENTERED_BY, f.TO_NODE, f.NODE_PORT, f.OWN_SOURCE, f.TCP_SRC, f.UDP_SRC, f.SCTP_SRC) | _IP | _PORTS,
    sets=_these(f.OUTSIDE),
    goes=(31, 80),
)
CONNTRACK_STATE = _table(
    31,
    "conntrack_state",
    Stage.CONNTRACK,
    "Invalid packets are dropped (those for the host are its own to judge, and so is most that it sends). A request "
    "of a service connection, also a second one before the first reply, takes the connection's SNAT kind; new "
    "connections look for a service; the rest is routed.",
    matches=_these(f.ENTERED_BY, f.TO_NODE, f.OUTSIDE, f.OWN_SOURCE, f.TCP_FLAGS) | _IP | _CT,
    sets=_these(f.SERVICE, f.SNAT_KIND),
    goes=(38, 44, 70, 80),
    calls=(40, 43),
)
SERVICE_SOURCE = _table(
    38,
    "service_source",
    Stage.PREROUTING,
    "Services that only some clients may use.",
    matches=_IP | _PORTS | _these(f.NODE_PORT),
    goes=(41,),
    miss=41,
)
AFFINITY = _table(
    40,
    "affinity",
    Stage.PREROUTING,
    "Called by conntrack_state: learned choices of services with session affinity; only learn writes here.",
    matches=_IP | _PORTS,
    sets=_these(f.ENDPOINT4, f.ENDPOINT_PORT, f.ENDPOINT_IP6, f.CHOSEN),
)
SERVICE_LB = _table(
    41,
    "service_lb",
    Stage.PREROUTING,
    "A service address and port: the group that chooses an endpoint. Anything else in a service range is refused.",
    matches=_IP | _PORTS | _these(f.ENTERED_BY, f.NODE_PORT, f.CHOSEN, f.TCP_FLAGS, f.IP_FRAG),
    sets=_these(f.ENDPOINT4, f.ENDPOINT_PORT, f.ENDPOINT_IP6, f.SERVICE_NUMBER, f.SHARE),
    goes=(42,),
    calls=(42, 45, 46),
    miss=70,
)
ENDPOINT_DNAT = _table(
    42,
    "endpoint_dnat",
    Stage.PREROUTING,
    "Commits the connection to the chosen endpoint, with how it entered, its SNAT kind and the client's MAC.",
    matches=_these(f.ETH_TYPE, f.IP_PROTO, f.ENDPOINT4, f.ENDPOINT_PORT, f.ENDPOINT_IP6),
    sets=_these(f.SERVICE, f.CT_SERVICE_PORT, f.CT_ENDPOINT_PORT) | _REMEMBER,
    goes=(70,),
    calls=(68,),
)
LEARN_REPLY = _table(
    43,
    "learn_reply",
    Stage.PREROUTING,
    "Called for requests from outside: the newest way back to the client is learned here, while there is room.",
    matches=_these(f.OUTSIDE, f.ETH_TYPE, f.CT_STATE),
    sets=_these(f.LEARNED),
    learns=(75,),
)
LABEL_REPLY = _table(
    44,
    "label_reply",
    Stage.PREROUTING,
    "Requests from outside whose client was not learned: the connection itself remembers the newest MAC.",
    matches=_these(f.OUTSIDE, f.LEARNED, f.ETH_TYPE) | _CT,
    sets=_these(f.CT_CLIENT_MAC, f.CT_LEARNED),
    goes=(70,),
    miss=70,
)
AFFINITY_LEARN = _table(
    45,
    "affinity_learn",
    Stage.PREROUTING,
    "Called by a service's group: the client's choice is learned, to be found in affinity next time.",
    matches=_these(f.ETH_TYPE, f.IP_PROTO, f.SERVICE_NUMBER, f.ENDPOINT4, f.ENDPOINT_PORT, f.ENDPOINT_IP6),
    learns=(40,),
    calls=(42,),
)
GROUP_SHARE = _table(
    46,
    "group_share",
    Stage.PREROUTING,
    "Called by the group of a service with more endpoints than one message can carry: the group with a share of them.",
    matches=_these(f.SHARE),
    calls=(42, 45),
)
ENDPOINT_PLACE = _table(
    68,
    "endpoint_place",
    Stage.PREROUTING,
    "Called by endpoint_dnat: where the chosen endpoint is, seen from this node.",
    matches=_these(f.ENTERED_BY, f.ENDPOINT_IP4, f.ENDPOINT_IP6) | _IP,
    sets=_these(f.PLACE),
    calls=(69,),
)
SNAT_NEED = _table(
    69,
    "snat_need",
    Stage.PREROUTING,
    "Called by endpoint_place: which source address the connection gets, by how it entered and where it goes.",
    matches=_these(f.ENTERED_BY, f.OWN_SOURCE, f.PLACE, f.ETH_TYPE),
    sets=_these(f.SNAT_KIND),
)
ROUTE = _table(
    70,
    "route",
    Stage.ROUTING,
    "Replies by how their connection entered; then local pods, this node, peers, the default: destination MAC and "
    "egress class.",
    matches=_these(f.ENTERED_BY, f.SERVICE, f.SNAT_KIND, f.ETH_DST) | _IP | _CT,
    sets=_these(f.ETH_DST, f.EGRESS, f.OUT_PORT, f.SNAT_KIND, f.TUN_DST, f.TUN_IP6_DST),
    goes=(80, 100, 104),
    calls=(75,),
)
REPLY_PATH = _table(
    75,
    "reply_path",
    Stage.ROUTING,
    "Called for replies to outside: learned ways back to clients. Only learn writes here.",
    matches=_these(f.ETH_TYPE, f.IP4_DST, f.IP6_DST),
    sets=_these(f.ETH_DST, f.EGRESS),
)
L2 = _table(
    80,
    "l2",
    Stage.ROUTING,
    "Between host and uplink with the MACs as they are.",
    matches=_these(f.ENTERED_BY),
    sets=_these(f.OUT_PORT),
    goes=(104,),
)
EGRESS = _table(
    100,
    "egress",
    Stage.POSTROUTING,
    "Per node: the egress class becomes source MAC, hop limit and output port, so that routes can be shared.",
    matches=_these(f.EGRESS, f.ENTERED_BY, f.SNAT_KIND, f.ETH_TYPE),
    sets=_these(f.ETH_SRC, f.ETH_DST, f.OUT_PORT, f.EGRESS, f.TOO_BIG),
    goes=(102, 104),
)
TUNNEL = _table(
    102,
    "tunnel",
    Stage.POSTROUTING,
    "Per node: packets for the tunnel; those that are too big for it are reported to their sender.",
    matches=_these(f.TOO_BIG, f.ENTERED_BY, f.ETH_TYPE),
    sets=_these(f.ETH_SRC, f.ETH_DST, f.OUT_PORT),
    goes=(104,),
)
PORT_CHECK = _table(
    104,
    "port_check",
    Stage.POSTROUTING,
    "A new plain connection is looked up the other way round: does another connection, which was translated, await "
    "its replies?",
    matches=_these(f.ETH_TYPE, f.IP_PROTO, f.IP_FRAG, f.TCP_FLAGS) | _CT,
    sets=_TURNED | _these(f.TURNED),
    goes=(105,),
    miss=105,
)
CT_COMMIT = _table(
    105,
    "ct_commit",
    Stage.POSTROUTING,
    "New plain connections are remembered with how they entered, and get another source port where another connection "
    "awaits their replies. SCTP of services gets its port here.",
    matches=_these(f.ETH_TYPE, f.IP_PROTO, f.SERVICE, f.TURNED, f.CT_MOVED) | _CT,
    sets=_REMEMBER | _TURNED | _these(f.CT_MOVED, f.SCTP_SRC, f.SCTP_DST),
    goes=(106,),
    miss=106,
)
SNAT = _table(
    106,
    "snat",
    Stage.POSTROUTING,
    "Connections whose replies must come back to this node get its SNAT address or its own address as source.",
    matches=_these(f.ETH_TYPE, f.SNAT_KIND),
    goes=(108, 110),
    miss=110,
)
HAIRPIN = _table(
    108,
    "hairpin",
    Stage.POSTROUTING,
    "A client that is its own endpoint sees the virtual address as its peer.",
    matches=_these(f.ETH_TYPE, f.SNAT_KIND),
    goes=(110,),
    miss=110,
)
OUTPUT = _table(
    110,
    "output",
    Stage.OUTPUT,
    "A translation that was wanted and not done is dropped and counted; else out, also by the port it came in "
    "where that is meant.",
    matches=_these(f.ENTERED_BY, f.SERVICE, f.SNAT_KIND, f.EGRESS) | _CT,
)

RESERVED = {
    "network policy": (*range(50, 62), *range(85, 100)),
}


def goto(table: Table) -> Goto:
    return Goto(table.id)


def resubmit(table: Table) -> Resubmit:
    return Resubmit(table.id)


def check_tables() -> list[str]:
    """What is wrong with the declarations themselves; empty when they are sound."""
    wrong = []
    for table in TABLES.values():
        for used in table.matches | table.sets:
            if isinstance(used, Part) and not used.first <= table.id <= used.last:
                wrong.append(f"{used.name} is not live in table {table.name}")
        for target in (*table.goes, *table.calls):
            if target not in BY_ID:
                wrong.append(f"table {table.name} goes to {target}, which does not exist")
        for target in table.goes:
            if target <= table.id:
                wrong.append(f"table {table.name} goes backwards to {target}")
        if any(table.id in numbers for numbers in RESERVED.values()):
            wrong.append(f"table {table.name} has a reserved id")
    return wrong


if _wrong := check_tables():
    raise AssertionError("; ".join(_wrong))
