"""What is wrong with one object, collected while it is read, and the checks that several kinds share.

A check returns the value, or None after noting a problem under a dotted field name. Nothing raises.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from k8s_bridge.wrong_types import TEXT, Refused, must_be
from pipelines.addresses import Cidr, Ip, parse_cidr, parse_ip
from pipelines.model import Problem, Protocol

# Addresses that no pod, service or node of a cluster can have, with the words for people.
_SPECIAL: tuple[tuple[Cidr, str], ...] = tuple(
    (parse_cidr(cidr), words)
    for cidr, words in (
        ("0.0.0.0/8", "unspecified"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "an IPv4 address in IPv6 form"),
        ("::ffff:0:0/96", "an IPv4 address in IPv6 form"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
    )
)
MOST_PROBLEMS = 50  # of one object; an annotation may hold a megabyte, and each problem becomes a line of the log
LONGEST_REASON = 300  # characters, of which a value may be all

LEAST_MTU, LARGEST_MTU = {4: 576, 6: 1280}, 65535  # bytes, by family

_CUT = re.compile(r"[.\[]")  # where a field lies in another
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
NAME_RULE = "is not a Kubernetes name (lower-case letters, digits, '-' and '.', at most 253)"


def valid_name(text: str) -> bool:
    """Whether `text` is a DNS subdomain, as names of objects are (RFC 1123)."""
    return _NAME.fullmatch(text) is not None


def shortened(text: str, most: int = LONGEST_REASON) -> str:
    """Begin and end of a text that is too long to be read."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


class Misspelt(NamedTuple):
    """A field that nobody knows, and the one that was meant, dotted; `there`: that one is there as well."""

    field: str
    meant: str
    there: bool


class Findings:
    """The problems of one object, in the order in which they were found.

    `refused`: what was left out for its type. Of these fields, and of those within, nothing more is said: that
    they are missing or empty now follows from it. `misspelt`: what will be missing without anybody having meant that.
    """

    def __init__(self, kind: str, key: str, refused: Sequence[Refused] = (), misspelt: Sequence[Misspelt] = ()) -> None:
        self._kind = kind
        self._key = key
        self._problems: list[Problem] = []
        self._refused: frozenset[str] = frozenset()
        for field, reason in refused:
            self.add(field, reason)
        self._refused = frozenset(field for field, _ in refused)
        for one in misspelt:
            self.add(one.field, f"unknown field; did you mean {one.meant.rpartition('.')[2]}?")
        self._meant = frozenset(one.meant for one in misspelt if not one.there)

    def refused(self, field: str) -> bool:
        """Whether nobody can tell what was meant here: by the type of the field, or of one that it lies in."""
        if not self._refused:
            return False
        return field in self._refused or any(field[: cut.start()] in self._refused for cut in _CUT.finditer(field))

    def lost(self, field: str) -> bool:
        """Whether something was written here, and cannot be used as it was written."""
        return field in self._meant or self.refused(field)

    def add(self, field: str, reason: str, *, consequence: bool = False) -> None:
        """The first MOST_PROBLEMS count, and one line stands for the others. `consequence`: of what was refused."""
        if len(self._problems) > MOST_PROBLEMS or (not consequence and self.refused(field)):
            return
        if len(self._problems) == MOST_PROBLEMS:
            field, reason = "object", f"has more than {MOST_PROBLEMS} problems; the others are not listed"
        self._problems.append(Problem(self._kind, self._key, field, shortened(reason)))

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems)

    def text(self, field: str, value: object) -> str | None:
        """A text that a person wrote; blank counts as absent."""
        if value is None:
            return None
        if not isinstance(value, str):
            self.add(field, must_be(TEXT, value))
            return None
        return value.strip() or None

    def ip(self, field: str, text: str, family: int | None = None, link_local: bool = False) -> Ip | None:
        """A unicast address, of `family` if that is given."""
        try:
            if "%" in text:
                raise ValueError(f"{text!r} has a scope, which means nothing to other machines")
            ip = parse_ip(text)
        except ValueError as error:
            self.add(field, str(error))
            return None
        if family is not None and ip.family != family:
            self.add(field, f"{text} is not an IPv{family} address")
            return None
        words = special(ip)
        if words is not None and not (link_local and words == "link-local"):
            self.add(field, f"{text} is {words}")
            return None
        return ip

    def cidr(self, field: str, text: str) -> Cidr | None:
        """A prefix of unicast addresses, never one of length 0."""
        try:
            cidr = parse_cidr(text)
        except ValueError as error:
            self.add(field, str(error))
            return None
        if cidr.length == 0:
            self.add(field, f"{text} would take every address")
            return None
        for other, words in _SPECIAL:
            if cidr.overlaps(other):
                self.add(field, f"{text} holds addresses that are {words}")
                return None
        return cidr

    def protocol(self, field: str, text: str | None) -> Protocol | None:
        """A protocol; Kubernetes takes an absent one for TCP."""
        if self.refused(field):
            return None
        try:
            return Protocol(text or "TCP")
        except ValueError:
            self.add(field, f"{text!r} is not TCP, UDP or SCTP")
            return None

    def port(self, field: str, number: int | None) -> int | None:
        if number is None:
            self.add(field, "required: a number from 1 to 65535")
        elif not 1 <= number <= 65535:
            self.add(field, f"{number} is not from 1 to 65535")
        else:
            return number
        return None

    def mtu(self, field: str, value: object, families: Collection[int]) -> int | None:
        """Bytes, as text that a person wrote; IPv6 needs 1280 (RFC 8200), IPv4 576."""
        text = self.text(field, value)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 5 or not LEAST_MTU[4] <= int(text) <= LARGEST_MTU:
            self.add(field, f"{text!r} is not a number of bytes from {LEAST_MTU[4]} to {LARGEST_MTU}")
            return None
        if 6 in families and int(text) < LEAST_MTU[6]:
            self.add(field, f"{text} is less than the {LEAST_MTU[6]} that IPv6 needs")
            return None
        return int(text)


def special(ip: Ip) -> str | None:
    """Why `ip` cannot be an ordinary unicast address, in a word; None when it can."""
    return next((words for cidr, words in _SPECIAL if cidr.__contains__(ip)), None)
