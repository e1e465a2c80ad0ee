"""SCTP through a node to an endpoint outside, on a real Open vSwitch: the node's address stands for the client's."""

import shutil
from collections.abc import Iterator

import pytest

from apps.packet_words import answer
from pipelines import fields as f
from pipelines.addresses import parse_ip, parse_mac
from pipelines.interpreter import Packet
from tests.codec.openvswitch import OpenVSwitch
from tests.interpreter.dummy import Dummy
from tests.interpreter.frames import frame, packet
from tests.ovs.states import STATES
from tests.ovs.world import FAMILIES, NODES, OUTSIDE_MAC, PLACES, ROUTER_MACS
from tests.services import world
from tests.services.world import SERVICES
from tests.simulation import services
from tests.simulation.sockets import PORTS

pytestmark = pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")

[STATE] = [state for state in STATES if state.name == "noEncap, all asked for"]
SERVICE, NODE, PORT = SERVICES["far"], NODES["n1"], 20000


@pytest.fixture
def switch(tmp_path) -> Iterator[Dummy]:
    real = OpenVSwitch(tmp_path)
    try:
        real.start()
        dummy = Dummy(real, services.compiled([*world.cluster(), *SERVICE.objects()], STATE).tables[NODE.name])
        yield dummy
        dummy.close()
    finally:
        real.stop()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_association_with_an_endpoint_outside_is_translated_there_and_back(switch: Dummy, family: int) -> None:
    """Answers come to an address of the node, with a port that any process could have."""
    client, own, server = (parse_ip(PLACES[name].addresses[family]) for name in ("outside", "n1", "remote"))
    asked = Packet.of(
        {
            f.ETH_SRC: parse_mac(OUTSIDE_MAC),
            f.ETH_DST: parse_mac(NODE.mac),
            f.ETH_TYPE: f.ETH[family].value,
            f.IP_PROTO: f.SCTP,
            f.IP_TTL: 64,
            f.IP_SRC[family]: client.value,
            f.IP_DST[family]: own.value,
            f.SCTP_SRC: PORT,
            f.SCTP_DST: SERVICE.node_port,
        },
        100,
    )
    for _ in range(2):
        [(port, sent)], _ = switch.give("eth1", frame(asked))
        there = packet(sent)
        assert port == "eth1"
        assert there[f.ETH_DST] == parse_mac(ROUTER_MACS[0])
        assert (there[f.IP_SRC[family]], there[f.IP_DST[family]]) == (own.value, server.value)
        assert (there[f.SCTP_SRC], there[f.SCTP_DST]) == (PORT, PORTS["sctp"].target)
        back = answer(there).having({f.ETH_SRC: there[f.ETH_DST], f.ETH_DST: there[f.ETH_SRC], f.IP_TTL: 63})
        [(port, sent)], _ = switch.give("eth1", frame(back))
        answered = packet(sent)
        assert port == "eth1"
        assert answered[f.ETH_DST] == parse_mac(OUTSIDE_MAC)
        assert (answered[f.IP_SRC[family]], answered[f.IP_DST[family]]) == (own.value, client.value)
        assert (answered[f.SCTP_SRC], answered[f.SCTP_DST]) == (SERVICE.node_port, PORT)
