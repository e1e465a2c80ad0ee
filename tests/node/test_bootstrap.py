"""The first flows of a node: what is written, and that Open vSwitch's own tool reads it so."""

from pathlib import Path

import pytest

from node import bootstrap
from pipelines.ids import split_cookie


def test_host_and_uplink_are_joined_both_ways_below_every_flow_of_a_controller() -> None:
    assert bootstrap.flows("eth1") == (
        'cookie=0xb007,table=0,priority=1,in_port="eth1",actions=output:LOCAL',
        'cookie=0xb007,table=0,priority=1,in_port=LOCAL,actions=output:"eth1"',
    )


def test_earlier_ones_go_first_and_those_of_others_do_not() -> None:
    first, *rest = bootstrap.text("eth1").splitlines()
    assert first == "delete cookie=0xb007/-1"
    assert rest == [f"add {flow}" for flow in bootstrap.flows("eth1")]


def test_cookie_is_not_one_of_the_controllers() -> None:
    assert split_cookie(bootstrap.COOKIE) is None


def test_command_goes_through_the_local_socket_in_one_bundle() -> None:
    default, elsewhere = bootstrap.command("br0"), bootstrap.command("br0", Path("/run/there"))
    assert default[-3:] == ["add-flows", "br0", "-"]
    assert elsewhere[-3:] == ["add-flows", "unix:/run/there/br0.mgmt", "-"]
    assert {"OpenFlow15", "--bundle"} < set(default) & set(elsewhere)


@pytest.mark.parametrize(
    "name", ["", 'e"th', "eth1,actions=drop", "eth1\nadd actions=NORMAL", "a\\", "sixteen-letters-"]
)
def test_what_is_no_name_of_a_port_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a port"):
        bootstrap.flows(name)
