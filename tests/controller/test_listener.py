"""TCP and TLS, with real sockets on the loopback address."""

import ssl
from contextlib import suppress
from random import Random

import eventlet
import pytest
from eventlet.green import socket

from controller.connection import PlainStream
from controller.listener import Listener, TlsStream
from controller.settings import SwitchSettings
from tests.controller.conftest import tls_context
from tests.controller.world import World, key, member, route, switch, until

UNITS = {key("route", "n2"): route("10.10.2.0")}


def tls_client(sock, context):
    """The switch's end."""
    stream = TlsStream(sock, context, server_side=False)
    stream.handshake()
    return stream


@pytest.fixture
def world():
    world = World(SwitchSettings())  # a loaded machine may need seconds for what takes none
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
        fake.attach(tls_client(eventlet.connect(listener.address), tls_context(pki, "switch", server=False)))
    for fake in fakes:
        world.await_state(fake)
        assert world.agrees(fake)
    with suppress(OSError):
        tls_client(eventlet.connect(listener.address), tls_context(pki, "stranger", server=False)).recv(1)
    until(lambda: "certificate verify failed" in caplog.text)
    plain = eventlet.connect(listener.address)
    plain.sendall(b"\x06\x00\x00\x08\x00\x00\x00\x01")
    assert plain.recv(100) == b"" or plain.recv(100) == b""
    world.publish({key("route", "1"): None})
    world.settle(*fakes)
    silent.close()
    listener.close()


def test_tls_carries_both_directions_at_once_whole_and_in_order_however_small_the_buffers(pki):
    """A switch that answers while it is written to: whoever finds the socket full must not tear a record."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least that the kernel allows
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    server = TlsStream(ours, tls_context(pki, "controller", server=True))
    accepting = eventlet.spawn(server.handshake)
    client = tls_client(theirs, tls_context(pki, "switch", server=False))
    accepting.wait()
    sizes = (1, 16384, 70000, 3, 16385, 200000, 8) * 3

    def receive(stream):
        received = bytearray()
        while len(received) < sum(sizes):
            received += stream.recv(1 << 16)
            eventlet.sleep(0)
        return bytes(received)

    def send(stream, seed):
        data = Random(seed).randbytes(sum(sizes))
        at = 0
        for size in sizes:
            stream.sendall(data[at : at + size])
            at += size
        return data

    with eventlet.Timeout(60):
        receiving = [eventlet.spawn(receive, stream) for stream in (client, server)]
        sending = [eventlet.spawn(send, stream, seed) for seed, stream in enumerate((server, client))]
        assert [thread.wait() for thread in receiving] == [thread.wait() for thread in sending]


def test_tls_without_client_certificates_is_not_offered(world):
    with pytest.raises(ValueError, match="CERT_REQUIRED"):
        Listener(("127.0.0.1", 0), world.switches, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_switch_that_speaks_another_version_and_leaves_first_is_told_what_to_do(world, caplog):
    listener = Listener(("127.0.0.1", 0), world.switches)
    listener.start()
    client = eventlet.connect(listener.address)
    client.sendall(bytes.fromhex("04000010000000010001000800000010"))  # hello with a bitmap of OpenFlow 1.3 alone
    client.close()
    until(lambda: "was not accepted" in caplog.text)
    assert "speaks OpenFlow 1.3, not OpenFlow 1.5: set protocols=OpenFlow15 on its bridge" in caplog.text
    listener.close()
