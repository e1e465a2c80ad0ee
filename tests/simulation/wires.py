"""Frames on their way between devices: one queue for the whole network, segments that only switch, and a guard."""

from collections import deque
from collections.abc import Callable

from pipelines import fields as f
from pipelines.interpreter import Packet

MOST_FRAMES = 2000  # for one question with its answer; more is a loop
Take = Callable[[Packet], None]


class Storm(AssertionError):
    """Frames beget frames without end."""


class Wires:
    """`log`, when it is a list, is told of every frame: by which cable, and what."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Take, Packet]] = deque()
        self.log: list[tuple[str, Packet]] | None = None

    def cable(self, name: str, take: Take) -> Take:
        """What is sent into it reaches `take`, in turn."""

        def send(packet: Packet) -> None:
            if self.log is not None:
                self.log.append((name, packet))
            self._queue.append((take, packet))

        return send

    def run(self) -> None:
        """Until nothing is on its way any more."""
        for _ in range(MOST_FRAMES):
            if not self._queue:
                return
            take, packet = self._queue.popleft()
            take(packet)
        self._queue.clear()
        raise Storm(f"more than {MOST_FRAMES} frames")


class Segment:
    """A bridge that learns."""

    def __init__(self, name: str, wires: Wires) -> None:
        self.name = name
        self._wires = wires
        self._ports: dict[str, Take] = {}
        self._learned: dict[int, str] = {}

    def join(self, name: str, take: Take) -> Take:
        """A port called `name`, towards `take`; returns what its station sends with."""
        self._ports[name] = self._wires.cable(f"{self.name}→{name}", take)
        return self._wires.cable(f"{name}→{self.name}", lambda packet: self._forward(name, packet))

    def _forward(self, came_by: str, packet: Packet) -> None:
        self._learned[packet[f.ETH_SRC]] = came_by
        known = self._learned.get(packet[f.ETH_DST])
        for name in self._ports if known is None or packet[f.ETH_DST] & f.MULTICAST else (known,):
            if name != came_by:
                self._ports[name](packet)
