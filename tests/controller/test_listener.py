"""TCP and TLS, with real sockets on the loopback address."""

import ssl
from collections import deque
from contextlib import suppress
from time import perf_counter

import eventlet
import pytest
from eventlet.green import socket

from controller.connection import PlainStream
from controller.listener import Listener
from tests.controller.conftest import tls_context
from tests.controller.world import World, key, member, route, switch, until

UNITS = {key("route", "n2"): route("10.10.2.0")}


class TlsClient(PlainStream):
    """The switch's end, on memory buffers."""

    def __init__(self, sock, context):
        super().__init__(sock)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)
        self._call(self._tls.do_handshake)

    def _call(self, function, *arguments):
        while True:
            try:
                return function(*arguments)
            except ssl.SSLWantReadError:
                self._flush()
                data = self._socket.recv(1 << 16)
                if not data:
                    return b""
                self._in.write(data)
            finally:
                self._flush()

    def _flush(self):
        if data := self._out.read():
            self._socket.sendall(data)

    def recv(self, size):
        return self._call(self._tls.read, size)

    def sendall(self, data):
        self._call(self._tls.write, data)


@pytest.fixture
def world():
    world = World()
    world.publish(UNITS)
    world.fleet.declare_ready()
    return world


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_switches_connect_over_tcp(world, address):
    listener = Listener((address, 0), world.switches)
    listener.start()
    world.publish(members={1: member("n1"), 2: member("n2")})
    fakes = switch(1), switch(2)
    for fake in fakes:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        sock.connect(listener.address)
        fake.attach(PlainStream(sock))
    for fake in fakes:
        world.await_state(fake)
        assert world.agrees(fake)
    where = listener.address
    listener.close()
    world.publish({key("route", "n2"): route("10.10.2.0", 80)})
    world.settle(*fakes)
    with pytest.raises(OSError, match="REFUSED"):
        eventlet.connect(where, family=sock.family)


def test_tls_works_for_every_switch_and_not_for_strangers(world, pki, caplog):
    listener = Listener(("127.0.0.1", 0), world.switches, tls_context(pki, "controller", server=True))
    listener.start()
    world.publish(members={n: member(f"n{n}") for n in (1, 2, 3)})
    silent = eventlet.connect(listener.address)  # never speaks: keeps nobody out
    many = {key("route", str(n)): route(f"11.{n >> 8}.{n & 255}.0") for n in range(3000)}
    world.publish(many)
    fakes = switch(1), switch(2), switch(3)
    for fake in fakes:
        fake.attach(TlsClient(eventlet.connect(listener.address), tls_context(pki, "switch", server=False)))
    for fake in fakes:
        world.await_state(fake)
        assert world.agrees(fake)
    with suppress(OSError):
        TlsClient(eventlet.connect(listener.address), tls_context(pki, "stranger", server=False)).recv(1)
    until(lambda: "TLS handshake failed" in caplog.text)
    plain = eventlet.connect(listener.address)
    plain.sendall(b"\x06\x00\x00\x08\x00\x00\x00\x01")
    assert plain.recv(100) == b"" or plain.recv(100) == b""
    world.publish({key("route", "1"): None})
    world.settle(*fakes)
    silent.close()
    listener.close()


def test_tls_without_client_certificates_is_not_offered(world):
    with pytest.raises(ValueError, match="CERT_REQUIRED"):
        Listener(("127.0.0.1", 0), world.switches, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_flood_of_packet_ins_of_one_switch_holds_neither_the_hub_nor_another():
    from tests.controller.test_session import _packet_in

    world, loud, quiet = World(), switch(1), switch(2)
    world.start(UNITS, 1, 2)
    world.connect(loud)
    world.connect(quiet)
    stop = False
    gaps: deque[float] = deque()

    def flood():
        burst = b"".join(b"\x06\x0a" + (8 + len(body)).to_bytes(2, "big") + bytes(4) + body for _ in range(200))
        while not stop:
            loud.links[0]._stream.sendall(burst)
            eventlet.sleep(0)

    def watch():
        while not stop:
            began = perf_counter()
            eventlet.sleep(0)
            gaps.append(perf_counter() - began)

    body = _packet_in(0x5B06000000000000)
    threads = eventlet.spawn(flood), eventlet.spawn(watch)
    for number in range(5):
        world.publish({key("route", "n2"): route(f"10.10.{number}.0")})
        with eventlet.Timeout(1):
            world.settle(quiet)
    with eventlet.Timeout(1):
        world.settle(loud)
    stop = True
    for thread in threads:
        thread.wait()
    assert world.agrees(quiet)
    assert world.agrees(loud)
    assert max(gaps) < 0.1


def test_fifty_switches_are_fed_from_units_encoded_once():
    world = World()
    fakes = [switch(dpid) for dpid in range(1, 51)]
    world.start({key("route", str(n)): route(f"10.9.{n}.0") for n in range(200)}, *range(1, 51))
    for fake in fakes:
        world.plug(fake)
    for fake in fakes:
        world.await_state(fake)
    assert all(world.agrees(fake) for fake in fakes)
    assert world.fleet.encoded_flows == 200
    assert sum(row.flow_mods_sent for row in world.switches.sessions()) == 50 * 200


def test_switch_that_speaks_another_version_and_leaves_first_is_told_what_to_do(world, caplog):
    listener = Listener(("127.0.0.1", 0), world.switches)
    listener.start()
    client = eventlet.connect(listener.address)
    client.sendall(bytes.fromhex("04000010000000010001000800000010"))  # hello with a bitmap of OpenFlow 1.3 alone
    client.close()
    until(lambda: "was not accepted" in caplog.text)
    assert "speaks OpenFlow 1.3, not OpenFlow 1.5: set protocols=OpenFlow15 on its bridge" in caplog.text
    listener.close()
