"""What an operator may set about switches. Times in seconds."""

from msgspec import Struct

from controller.connection import Patience
from controller.guard import GuardRule
from controller.rows import MeterRow
from pipelines.ids import NEIGHBOR_METER, REJECT_METER, TOO_BIG_METER


class SwitchSettings(Struct, frozen=True):
    patience: Patience = Patience()
    guard: GuardRule = GuardRule()
    audit_interval: float = 300  # jittered by a tenth; 0: no audits
    bundle_timeout: float = 30  # for each wait inside a bundle; afterwards its outcome is unknown
    bundle_messages: int = 50_000  # a round of more is cut
    probe_timeout: float = 3  # for a switch whose datapath id a second connection claims
    readings: int = 4  # switches that are read back at once
    flush_again: tuple[float, ...] = (1, 5)  # a busy Open vSwitch flushes only a part; what is known by name also later
    observe_all: bool = False
    observe_nodes: frozenset[str] = frozenset()
    reject_packets: int = 200  # packets a second to refuse, per switch (its meter)
    reject_burst: int = 100
    neighbor_packets: tuple[int, int] = (200, 200)  # a second, and at once: what neighbours say
    too_big_packets: tuple[int, int] = (50, 50)

    @property
    def meters(self) -> tuple[MeterRow, ...]:
        """Every meter that flows refer to, with packets a second and burst."""
        return (
            MeterRow(REJECT_METER, self.reject_packets, self.reject_burst),
            MeterRow(NEIGHBOR_METER, *self.neighbor_packets),
            MeterRow(TOO_BIG_METER, *self.too_big_packets),
        )

    def observes(self, node: str) -> bool:
        """Whether this node's switch is only looked at."""
        return self.observe_all or node in self.observe_nodes
