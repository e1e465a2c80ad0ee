"""The largest group fits in one OpenFlow message, in both families."""

import pytest

from controller.encode import LONGEST, Xids, encode_unit
from pipelines.addresses import Ip
from pipelines.derived import GROUP_SIZE, ServiceBackends, Target
from pipelines.features import NUMBERS
from pipelines.features.services import service_group
from pipelines.model import Protocol
from pipelines.unit import FLEET, UnitKey


class OneGroup:
    """The part of a view that a group asks."""

    def group_id(self, service_port: str) -> int:
        del service_port
        return 0x5B000001


@pytest.mark.parametrize("family", [4, 6])
def test_as_many_endpoints_as_are_not_divided_fit_in_one_group(family: int) -> None:
    most = GROUP_SIZE
    first = 10 << 24 if family == 4 else 0xFD00 << 112
    targets = tuple(Target(Ip(family, first + number), 8080, Protocol.TCP) for number in range(most))
    unit = service_group(ServiceBackends("d/s http", "d/s", Protocol.TCP, targets), OneGroup())  # type: ignore[arg-type]
    encoded = encode_unit(UnitKey("services.group", FLEET, "d/s"), NUMBERS["services.group"], unit, None, Xids())
    (group,) = encoded.groups.values()
    assert len(group.message) <= LONGEST
    assert len(unit.groups[0].buckets) == most
