"""A client that is refused and tries again at once from the same port, on a real Open vSwitch.

The userspace datapath of Open vSwitch 3.1.0 ends itself over this where plain connections are translated to nothing:
they are not (decision 8).
"""

import shutil
from collections.abc import Iterator

import pytest

from apps.packet_words import answer, parse
from pipelines import fields as f
from pipelines.addresses import parse_mac
from tests.codec.openvswitch import OpenVSwitch
from tests.interpreter.dummy import Dummy
from tests.interpreter.frames import frame, packet
from tests.ovs.states import State
from tests.simulation import cluster

pytestmark = pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")

RESET = 0x14
STATE = State("peers known", peers="annotation", routers=False)


@pytest.fixture
def switch(tmp_path) -> Iterator[Dummy]:
    real = OpenVSwitch(tmp_path)
    try:
        real.start()
        dummy = Dummy(real, cluster.in_state(STATE).tables["n1"])
        yield dummy
        dummy.close()
    finally:
        real.stop()


@pytest.mark.parametrize(
    "connection",
    [
        pytest.param("tcp,10.10.1.10:4000→10.96.0.12:80", id="service"),
        pytest.param("tcp,10.10.1.10:4000→10.96.0.11:80", id="service on the same node"),
        pytest.param("tcp,10.10.1.10:4000→10.10.2.10:81", id="plain"),
    ],
)
def test_a_port_may_be_used_again_after_a_refusal(switch: Dummy, connection: str) -> None:
    plan = cluster.in_state(STATE).plan
    pod = next(pod for pod in plan.pods if pod.name == "a")
    macs = {f.ETH_SRC: parse_mac(pod.station.mac), f.ETH_DST: parse_mac(plan.node("n1").gateway_mac)}
    asked = frame(parse(connection).having(macs))
    for _ in range(3):
        [(port, sent)], _ = switch.give(pod.port, asked)
        there = packet(sent)
        back = {f.ETH_SRC: there[f.ETH_DST], f.ETH_DST: there[f.ETH_SRC], f.TCP_FLAGS: RESET}
        [(port, refused)], _ = switch.give(port, frame(answer(there).having(back)))
        assert (port, packet(refused)[f.TCP_DST]) == (pod.port, 4000)
