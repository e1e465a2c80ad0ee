"""The smaller messages, as a real Open vSwitch understands them and answers."""

import struct

import pytest

from controller import encode, readback
from controller.encode import Xids, encode_unit
from controller.readback import BundleReply, MeterRow
from pipelines import fields
from pipelines.actions import CONTROLLER_PORT, IN_PORT_ACTION, Controller, Ct, Goto, Nat, Output, Resubmit, ToGroup
from pipelines.addresses import parse_ip
from pipelines.flow import Flow, match
from pipelines.unit import FLEET, Tuple, Unit, UnitKey

KEY = UnitKey("sample", FLEET, "default/web")
CLIENT, SERVICE, ENDPOINT = parse_ip("10.10.0.9"), parse_ip("10.96.0.10"), parse_ip("10.10.0.5")
DNS = Tuple(fields.UDP, SERVICE, 53, ENDPOINT, 5353)
OTHER = Tuple(fields.UDP, parse_ip("10.96.0.11"), 53, ENDPOINT, 5353)

ovs = pytest.mark.ovs


def frame(destination, source_port: int) -> bytes:
    """UDP from the client to port 53 of a destination; no checksum."""
    udp = struct.pack("!HHHH", source_port, 53, 12, 0) + b"ping"
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, *(
        ip.value.to_bytes(4, "big") for ip in (CLIENT, destination)
    ))  # fmt: skip
    total = sum(struct.unpack("!10H", head))
    head = head[:10] + struct.pack("!H", ~(total % 0xFFFF) & 0xFFFF) + head[12:]
    return bytes.fromhex("0a580a0a0005 0a580a0a0009 0800") + head + udp


@pytest.fixture
def port(switch):
    """The OpenFlow number of a port that exists."""
    switch.vsctl(
        "--may-exist", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy", "ofport_request=1"
    )
    return 1


@pytest.fixture
def installed(wire):
    """Installs flows, and takes them away afterwards."""
    units = []

    def install(*flows):
        units.append(encode_unit(KEY, 5, Unit(flows), None, Xids()))
        assert wire.install(units[-1]) == []
        return units[-1]

    yield install
    for unit in units:
        assert wire.bundle(map(encode.delete_flow, unit.flows.values())) == []


@ovs
def test_features_and_ports_are_read(wire, port):
    assert readback.features(wire.ask(encode.features_request(wire.xid()))) == 0xAA
    rows = [row for part in wire.parts(encode.port_desc_request(wire.xid())) for row in readback.ports(part)]
    assert {row.name: row.number for row in rows} == {"br0": 0xFFFFFFFE, "p1": port}
    assert all(row.mac for row in rows)


@ovs
def test_port_status_tells_of_ports_that_come_and_go(switch):
    wire = switch.connect()
    wire.send(encode.set_async(wire.xid()))  # a connection by the management socket hears nothing unless it asks
    switch.vsctl("add-port", "br0", "p9", "--", "set", "interface", "p9", "type=dummy", "ofport_request=9")
    switch.vsctl("del-port", "br0", "p9")
    seen = []
    while (9, True) not in seen:
        message = wire.receive()
        assert message[1] == encode.PORT_STATUS
        row, gone = readback.port_status(message)
        assert row.name == "p9"
        seen.append((row.number, gone))
    assert seen[0] == (9, False)
    wire.close()


@ovs
def test_newer_master_is_told_and_the_older_is_refused(switch):
    one, two = switch.connect(), switch.connect()
    generation = readback.role(one.ask(encode.role_query(one.xid()))).generation
    first = readback.role(one.ask(encode.role_master(one.xid(), (generation + 1) % (1 << 64))))
    assert first.is_master
    second = readback.role(two.ask(encode.role_master(two.xid(), (first.generation + 1) % (1 << 64))))
    assert second.is_master
    told = one.receive()
    assert told[1] == encode.ROLE_STATUS
    assert readback.role(told).is_secondary
    stale = readback.error(one.ask(encode.role_master(one.xid(), first.generation)))
    assert str(stale) == "ROLE_REQUEST_FAILED STALE"
    refused = readback.error(one.ask(encode.meter_mod(one.xid(), 9, 1, 1)))
    assert refused.is_secondary
    one.close()
    two.close()


@ovs
def test_meter_is_added_changed_and_deleted(wire):
    def meters():
        return [row for row in readback.meters(wire.ask(encode.meter_config_request(wire.xid()))) if row.id == 0x5B01]

    assert meters() == []
    for modify, packets in ((False, 100), (True, 200)):
        wire.send(encode.meter_mod(wire.xid(), 0x5B01, packets, 50, modify=modify))
        assert meters() == [MeterRow(0x5B01, packets, 50)]
    again = readback.error(wire.ask(encode.meter_mod(wire.xid(), 0x5B01, 1, 1)))
    assert again.name == "METER_MOD_FAILED METER_EXISTS"
    wire.send(encode.meter_delete(wire.xid(), 0x5B01))
    assert meters() == []


@ovs
def test_bundle_controls_are_answered_and_errors_have_names(wire):
    assert readback.bundle_reply(wire.ask(encode.bundle_open(wire.xid()))) == BundleReply(encode.BUNDLE_ID, 1)
    assert readback.bundle_reply(wire.ask(encode.bundle_close(wire.xid()))) == BundleReply(encode.BUNDLE_ID, 3)
    assert readback.bundle_reply(wire.ask(encode.bundle_discard(wire.xid()))) == BundleReply(encode.BUNDLE_ID, 7)
    assert str(readback.error(wire.ask(encode.bundle_commit(wire.xid())))) == "BUNDLE_FAILED BAD_ID"


@ovs
def test_error_of_a_flow_has_its_xid_and_a_name(wire):
    backward = encode_unit(KEY, 5, Unit((Flow(9, 1, (), (Goto(3),)),)), None, Xids())
    (error,) = wire.install(backward)
    assert error.xid == next(iter(backward.flows.values())).xid
    assert str(error) == "BAD_INSTRUCTION BAD_TABLE_ID"
    unknown = encode_unit(KEY, 5, Unit((Flow(9, 1, (), (ToGroup(0x5B0000FF),)),)), None, Xids())
    first, last = wire.install(unknown)
    assert (str(first), str(last)) == ("BAD_ACTION BAD_OUT_GROUP", "BUNDLE_FAILED MSG_FAILED")
    assert first.xid == next(iter(unknown.flows.values())).xid


@ovs
def test_packet_goes_out_and_comes_in_with_cookie_port_and_data(switch, installed, port):
    wire = switch.connect()
    wire.send(encode.role_master(wire.xid(), readback.role(wire.ask(encode.role_query(wire.xid()))).generation + 1))
    wire.send(encode.set_async(wire.xid()))
    unit = installed(Flow(7, 1, match(fields.IP4), (Controller(60),)))
    data = frame(SERVICE, 4000).ljust(100, b"x")
    wire.send(encode.packet_out(wire.xid(), data, (Resubmit(7),), in_port=port))
    while (message := wire.receive())[1] != encode.PACKET_IN:
        assert message[1] != encode.ERROR, readback.error(message)
    packet = readback.packet_in(message)
    assert packet.cookie == next(iter(unit.flows.values())).cookie
    # Open vSwitch 3.1 keeps no buffers and sends the whole frame, whatever max_len says.
    assert (packet.table, packet.in_port, packet.data) == (7, port, data)
    wire.close()


@ovs
def test_only_flows_of_our_mark_that_were_not_learned_are_read(switch, wire, installed):
    unit = installed(Flow(7, 1, match(fields.IP4), ()))
    for cookie in ("0x5b0b000000000001", "0x5a0a000000000001", "0"):
        switch.ofctl("add-flow", "br0", f"cookie={cookie},table=8,priority={int(cookie, 0) % 100},actions=drop")
    try:
        assert wire.flows().keys() == unit.flows.keys()
    finally:
        switch.ofctl("del-flows", "br0", "table=8")


@ovs
def test_packet_out_from_the_controllers_own_port_is_accepted(wire, port):
    wire.send(encode.packet_out(wire.xid(), frame(SERVICE, 1), (Output(port), Output(IN_PORT_ACTION)), CONTROLLER_PORT))
    assert wire.ask(encode.barrier(wire.xid()))[1] == encode.BARRIER_REPLY


@ovs
def test_conntrack_flush_forgets_the_connections_it_names_and_no_others(switch, wire, installed, port):
    natted = Ct(1, 8, commit=True, nat=Nat("dst", ENDPOINT, 5353))
    installed(
        Flow(7, 1, match(fields.IP4, fields.IP_PROTO.eq(fields.UDP)), (natted,)),
        Flow(8, 1, match(fields.IP4), (Output(port),)),
    )

    def connect(service, source_port):
        out = encode.packet_out(wire.xid(), frame(service, source_port), (Resubmit(7),), in_port=0xFFFFFFFE)
        wire.send(out)
        assert wire.ask(encode.barrier(wire.xid()))[1] == encode.BARRIER_REPLY

    def connections():
        lines = switch.run("ovs-appctl", f"--target={control(switch)}", "dpctl/dump-conntrack").splitlines()
        return sorted(
            line.split("dst=")[1].split(",")[0] + " " + line.split("sport=")[1].split(",")[0] for line in lines
        )

    def control(switch):
        return str(next(switch.directory.glob("ovs-vswitchd.*.ctl")))

    connect(DNS.frontend, 4001)
    connect(DNS.frontend, 4002)
    connect(OTHER.frontend, 4003)
    assert connections() == ["10.96.0.10 4001", "10.96.0.10 4002", "10.96.0.11 4003"]
    wire.send(encode.ct_flush_exact(wire.xid(), 1, fields.UDP, CLIENT, 4001, DNS.frontend, 53))
    assert wire.ask(encode.barrier(wire.xid()))[1] == encode.BARRIER_REPLY
    assert connections() == ["10.96.0.10 4002", "10.96.0.11 4003"]
    wire.send(encode.ct_flush(wire.xid(), 2, DNS))  # another zone
    wire.send(encode.ct_flush(wire.xid(), 1, DNS._replace(endpoint=CLIENT)))  # another endpoint
    assert wire.ask(encode.barrier(wire.xid()))[1] == encode.BARRIER_REPLY
    assert connections() == ["10.96.0.10 4002", "10.96.0.11 4003"]
    for _ in range(3):
        wire.send(encode.ct_flush(wire.xid(), 1, DNS))
    assert wire.ask(encode.barrier(wire.xid()))[1] == encode.BARRIER_REPLY
    assert connections() == ["10.96.0.11 4003"]
    wire.send(encode.ct_flush(wire.xid(), 1, OTHER._replace(endpoint_port=0)))
    wire.send(encode.ct_flush(wire.xid(), 1, OTHER._replace(endpoint_port=0)))
    assert wire.ask(encode.barrier(wire.xid()))[1] == encode.BARRIER_REPLY
    assert connections() == []


@pytest.mark.parametrize("zone", [None, 0, 65536, -1])
def test_conntrack_flush_without_a_zone_is_refused(zone):
    with pytest.raises(ValueError, match="zone"):
        encode.ct_flush(1, zone, DNS)
    with pytest.raises(ValueError, match="zone"):
        encode.ct_flush_exact(1, zone, fields.UDP, CLIENT, 1, SERVICE, 53)


@ovs
@pytest.mark.parametrize(
    ("message", "says"),
    [
        (encode.hello(1), "version bitmap: 0x06"),
        (encode.hello_failed(1, "set protocols=OpenFlow15"), "set protocols=OpenFlow15"),
        (encode.set_async(1), "OFPT_SET_ASYNC"),
        (encode.ct_flush(1, 1, DNS), "NXT_CT_FLUSH"),
    ],
)
def test_ovs_ofctl_prints_what_is_meant(switch, message, says):
    assert says in switch.ofctl("ofp-print", message.hex())


def test_hello_with_or_without_a_bitmap():
    assert readback.speaks(encode.hello(1), 6)
    assert readback.speaks(bytes.fromhex("0600000800000001"), 6)
    assert not readback.speaks(bytes.fromhex("0400000800000001"), 6)
    assert not readback.speaks(bytes.fromhex("06000010000000010001000800000010"), 6)
    assert readback.version_name(4) == "OpenFlow 1.3"
    assert readback.version_name(99) == "OpenFlow version 99"


def test_errors_of_experimenters_have_names():
    message = bytes.fromhex("0601001400000007ffff002a00002320")
    assert readback.error(message).name == "BAD_ACTION CT_DATAPATH_SUPPORT"
    assert readback.error(bytes.fromhex("0601001400000007ffff002a00001234")).name == "experimenter 0x1234 error 42"
    assert readback.error(bytes.fromhex("0601000c000000070063002a")).name == "type 99 code 42"


def test_echo_reply_repeats_the_data_in_our_version():
    assert encode.echo_reply(bytes.fromhex("0402000c00000007cafebabe")) == bytes.fromhex("0603000c00000007cafebabe")
