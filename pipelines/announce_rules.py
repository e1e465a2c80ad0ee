"""Which external addresses of services are announced on which segment, and which node answers for each.

An address belongs to the segment whose subnet it lies in. Of the nodes there that are not down, and that have a
ready endpoint where policies ask for one, a hash of address and node chooses: the same on every replica, and a node
that comes or goes moves only its own share. Where every node is down it is the way there that is broken, and
nothing moves.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from pipelines.addresses import Ip, parse_ip
from pipelines.claims import Claim, Outcome
from pipelines.derived import (
    Announced,
    Derived,
    Entrance,
    Frontend,
    OnLink,
    Opening,
    Station,
    around,
    known_segment,
    segments,
    subnet,
)
from pipelines.model import Claimed, Kind, Node
from pipelines.view import Facts


def stations(key: str, node: Node, facts: Facts) -> Outcome:
    if not facts.settings().announce or node.uplink is None or node.datapath_id is None:
        return Outcome()
    if facts.get(Derived.DATAPATH, f"{node.datapath_id:016x}") != key:
        return Outcome()
    one = (Station(key, facts.get(Kind.DOWN, key) is None),)
    return Outcome(Claim(Derived.STATIONS, name, one) for name in segments(node) if known_segment(name))


def announceable(key: str, front: Frontend, facts: Facts) -> Outcome:
    """Addresses in a pool, but not those that a node has, which its host answers for."""
    del key
    if front.entrance not in (Entrance.LOAD_BALANCER, Entrance.EXTERNAL_IP):
        return Outcome()
    if not any(pool.__contains__(front.ip) for pool in facts.settings().announce):
        return Outcome()
    if facts.get(Derived.NODE_ADDRESS, str(front.ip)) is not None:
        return Outcome()
    opening = Opening(front.service, front.backends, front.local)
    return Outcome([Claim(Derived.ANNOUNCEABLE, str(front.ip), (opening,))])


def announced(key: str, openings: tuple[Opening, ...], facts: Facts) -> Outcome:
    ip = parse_ip(key)
    segment = _segment(ip, facts)
    if segment is None:
        return Outcome()
    claims = [Claim(Derived.ON_LINK, key, OnLink(ip, segment))]
    claim: Claimed | None = facts.get(Kind.CLAIM, key)
    claimed = claim is not None and claim.segment == segment
    node = _elected(ip, segment, openings, claim.node if claim and claimed else "", facts)
    if node:
        claims.append(Claim(Derived.ANNOUNCED, key, Announced(ip, node, segment, claimed)))
    return Outcome(claims)


def _segment(ip: Ip, facts: Facts) -> str | None:
    """The narrowest, should subnets overlap."""
    return max(around(ip, facts.all(Derived.SEGMENT)), key=lambda name: (subnet(name).length, name), default=None)


def _elected(ip: Ip, segment: str, openings: Iterable[Opening], holder: str, facts: Facts) -> str:
    """The node that answers, "" when none can.

    The one that is chosen may not have been heard of since the controller started. Until it is, who answered
    before the start goes on.
    """
    there: tuple[Station, ...] = facts.get(Derived.STATIONS, segment) or ()
    names = [one.node for one in there if one.alive] or [one.node for one in there]
    served = [_served(opening, facts) for opening in openings]
    counts = {name: sum(nodes is None or name in nodes for nodes in served) for name in names}
    most = max(counts.values(), default=0)
    able = [name for name in names if counts[name] == most] if most else []
    if not able:
        return ""
    chosen = max(able, key=lambda name: (_weight(ip, name), name))
    return holder if holder in able and not _seen(chosen, facts) else chosen


def _served(opening: Opening, facts: Facts) -> frozenset[str] | None:
    """The nodes on which clients are served by it; None: all."""
    if not opening.local:
        return None
    return frozenset(one.node for one in facts.get(Derived.BACKENDS, opening.backends) or () if one.ready)


def _seen(name: str, facts: Facts) -> bool:
    node: Node | None = facts.get(Kind.NODE, name)
    return node is not None and node.uplink is not None and facts.port(name, node.uplink) is not None


@lru_cache(maxsize=65536)
def _weight(ip: Ip, node: str) -> bytes:
    """Highest random weight, as in rendezvous hashing."""
    return hashlib.blake2b(f"{ip} {node}".encode(), digest_size=8).digest()
