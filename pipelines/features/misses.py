"""What happens in a table when no other flow matches: on to the declared table, or dropped and counted."""

from pipelines.feature import Feature, unit
from pipelines.model import Kind, Settings
from pipelines.tables import BY_ID, TABLES, goto
from pipelines.unit import ScopeKind, Unit
from pipelines.view import FleetView


def table_misses(settings: Settings, view: FleetView) -> Unit:
    """Packets that match nothing else in their table."""
    del settings, view
    return unit(
        table.flow(0, (), *(() if table.miss is None else (goto(BY_ID[table.miss]),))) for table in TABLES.values()
    )


FEATURES = (Feature("misses", 1, ScopeKind.FLEET, Kind.SETTINGS, table_misses),)
