"""The ports of one switch, by name: as listed at the connect, then as its port-status messages say."""

from collections.abc import Iterable

from controller.readback import PortRow
from pipelines.model import Change, Kind, Port, port_key


class Ports:
    """Status messages that arrive before the list is complete are applied after it: then the order is right."""

    def __init__(self) -> None:
        self.by_name: dict[str, Port] = {}
        self.devices: set[str] = set()  # names of those that are described as network devices
        self._early: list[tuple[PortRow, bool]] | None = []

    def listed(self, rows: Iterable[PortRow]) -> None:
        rows = list(rows)
        self.by_name = {row.name: Port(row.number, row.mac) for row in rows}
        self.devices = {row.name for row in rows if row.device}
        early, self._early = self._early or [], None
        for row, deleted in early:
            self.status(row, deleted)

    def status(self, row: PortRow, deleted: bool) -> tuple[str, Port | None] | None:
        """The name and what it is now; None when that is nothing new."""
        if self._early is not None:
            self._early.append((row, deleted))
            return None
        known = self.by_name.get(row.name)
        if deleted:
            if known is None or known.number != row.number:
                return None  # a renumbered port: its new number was announced first
            del self.by_name[row.name]
            self.devices.discard(row.name)
            return row.name, None
        (self.devices.add if row.device else self.devices.discard)(row.name)
        port = Port(row.number, row.mac)
        if port == known:
            return None
        self.by_name[row.name] = port
        return row.name, port


def change(node: str, name: str, port: Port | None) -> Change:
    return Change(Kind.PORT, port_key(node, name), port)
