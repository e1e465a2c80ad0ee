"""One Open vSwitch for all tests of the codec."""

from collections.abc import Iterator

import pytest

from controller import encode
from pipelines.ids import FIRST_GROUP
from tests.codec.openvswitch import OpenVSwitch, Wire


@pytest.fixture(scope="session")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVSwitch]:
    ovs = OpenVSwitch(tmp_path_factory.mktemp("ovs"))
    try:
        ovs.start()
        yield ovs
    finally:
        ovs.stop()


@pytest.fixture(scope="session")
def wire(switch: OpenVSwitch) -> Iterator[Wire]:
    """A connection to the switch, which has the groups and the meter that samples name."""
    switch.ofctl("add-meter", "br0", "meter=7,pktps,burst,bands=type=drop,rate=50,burst_size=50")
    for number in (FIRST_GROUP + 1, FIRST_GROUP + 2):
        switch.ofctl("add-group", "br0", f"group_id={number},type=select,bucket=bucket_id:1,actions=drop")
    connection = switch.connect()
    assert encode.VERSION == 6
    yield connection
    connection.close()
