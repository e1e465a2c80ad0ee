"""Numbers by which a switch knows our things again: cookies and group ids.

A cookie is own mark 8 | feature 7 | learned 1 | owner hash 16 | digest 32. The digest covers the wire bytes,
so a flow that was read back is up to date when its cookie is, without parsing it. The owner hash is a hint
for people; `explain` looks up key and cookie. Learned flows carry no digest.

Group ids are derived from the owner's key, so they are the same on every replica and after every restart and
need no stored file. Owners whose ids would be equal are probed in the order of their keys.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

OWN_MARK = 0x5B
OWN_COOKIE, OWN_COOKIE_MASK = OWN_MARK << 56, 0xFF << 56
LEARNED = 1 << 48
NOT_LEARNED_MASK = OWN_COOKIE_MASK | LEARNED  # with OWN_COOKIE: own flows that we wrote ourselves

GROUP_BITS = 24
FIRST_GROUP, LAST_GROUP = OWN_MARK << GROUP_BITS, (OWN_MARK << GROUP_BITS) | (1 << GROUP_BITS) - 1

# Packet-ins: refused packets, what neighbours say, packets that are too big for a tunnel.
REJECT_METER, NEIGHBOR_METER, TOO_BIG_METER = 0x5B01, 0x5B02, 0x5B03


class Cookie(NamedTuple):
    feature: int
    learned: bool
    owner: int
    digest: int


def cookie(feature: int, owner: str, digest: int) -> int:
    """The cookie of a flow of feature number `feature` (1 … 127) about object `owner` with a 32-bit digest."""
    return OWN_COOKIE | feature << 49 | owner_hash(owner) << 32 | digest


def learned_cookie(feature: int, owner: str) -> int:
    """Of what is learned for `owner`: 48 bits of its hash, because flows of one cookie are deleted together."""
    digest = int.from_bytes(hashlib.blake2b(owner.encode(), digest_size=4, person=b"learned").digest(), "big")
    return OWN_COOKIE | feature << 49 | LEARNED | owner_hash(owner) << 32 | digest


def split_cookie(value: int) -> Cookie | None:
    """None when the cookie is not ours."""
    if value & OWN_COOKIE_MASK != OWN_COOKIE:
        return None
    return Cookie(value >> 49 & 0x7F, bool(value & LEARNED), value >> 32 & 0xFFFF, value & 0xFFFFFFFF)


@lru_cache(maxsize=65536)
def owner_hash(owner: str) -> int:
    return int.from_bytes(hashlib.blake2b(owner.encode(), digest_size=2).digest(), "big")


class GroupIds:
    """Group ids of a changing set of owners; the ids depend on the set alone, never on its history."""

    def __init__(self, bits: int = GROUP_BITS) -> None:
        self._size = 1 << bits  # tests make it small to force collisions
        self._ids: dict[str, int] = {}
        self._taken: dict[int, str] = {}
        self._crowded = False  # whether any two owners ever wanted one id: then changes recompute all

    def __getitem__(self, owner: str) -> int:
        return self._ids[owner]

    def get(self, owner: str) -> int | None:
        return self._ids.get(owner)

    def update(self, add: Iterable[str] = (), remove: Iterable[str] = ()) -> set[str]:
        """Returns the owners, old ones included, whose id is now another one (or is gone, or is new)."""
        add, remove = list(add), list(remove)
        clash = any(self._taken.get(self._wanted(owner), owner) != owner for owner in add)
        if len({self._wanted(owner) for owner in add}) < len(set(add)):
            clash = True
        if clash or self._crowded:
            return self._recompute((set(self._ids) - set(remove)) | set(add))
        for owner in remove:
            self._taken.pop(self._ids.pop(owner, -1), None)
        for owner in add:
            self._ids[owner] = self._wanted(owner)
            self._taken[self._ids[owner]] = owner
        return set(add) | set(remove)

    def _recompute(self, owners: set[str]) -> set[str]:
        if len(owners) > self._size:
            raise ValueError(f"{len(owners)} groups do not fit in {self._size} ids")
        before = self._ids
        self._ids, self._taken, self._crowded = {}, {}, False
        for owner in sorted(owners):
            number = self._wanted(owner)
            while number in self._taken:
                self._crowded = True
                number = FIRST_GROUP + (number + 1 - FIRST_GROUP) % self._size
            self._ids[owner] = number
            self._taken[number] = owner
        return {owner for owner in owners | set(before) if before.get(owner) != self._ids.get(owner)}

    def _wanted(self, owner: str) -> int:
        digest = hashlib.blake2b(owner.encode(), digest_size=8).digest()
        return FIRST_GROUP + int.from_bytes(digest, "big") % self._size
