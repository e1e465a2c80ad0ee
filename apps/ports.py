"""What a switch tells of its ports, under the names that flows are compiled for."""

from collections.abc import Iterable

from pipelines.actions import LOCAL_PORT
from pipelines.model import Change, Port, port_key


def local_named(changes: Iterable[Change]) -> list[Change]:
    """The bridge's own port is called LOCAL, whatever the bridge is called; no other port is."""
    named = []
    for change in changes:
        node, _, name = change.key.partition(" ")
        if isinstance(change.value, Port) and change.value.number == LOCAL_PORT:
            named.append(change._replace(key=port_key(node, "LOCAL")))
        elif name != "LOCAL":
            named.append(change)
    return named
