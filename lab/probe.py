"""A client that works through a list of probes at once and prints what came of each. Run by path, like `echo`.

Standard input: a JSON list of objects, standard output: a JSON list in the same order.

    {"protocol": "tcp", "host": "10.96.0.80", "port": 80,   what to ask; the rest may be left out
     "source": "", "source_port": 0,    local address and port
     "requests": 1, "pause": 0,         round trips on one connection, seconds between them
     "timeout": 2,                      seconds for the connection and for each round trip
     "tries": 1,                        how often a datagram is sent until it is answered
     "size": 1}                         bytes of a request

    {"answers": ["web-1 10.10.1.10 40000", …], "error": "", "milliseconds": 1.3, "longest": 0.9}

`error` is what ended the probe early: "timeout", "closed", or the name of the errno (ECONNREFUSED …).
`milliseconds` covers the whole probe, `longest` the longest round trip, in milliseconds.
"""

import asyncio
import errno
import json
import socket
import sys
import time
from typing import Any

AT_ONCE = 10  # of each client: what a port of Open vSwitch holds, while that waits for a processor, is some 270 frames
MOST = 65536


class Closed(OSError):
    """The other end has ended the connection."""


async def probe(wish: dict[str, Any], slots: asyncio.Semaphore) -> dict[str, Any]:
    answers: list[str] = []
    longest = 0.0
    error = ""
    async with slots:
        start = time.monotonic()
        kind = socket.SOCK_STREAM if wish["protocol"] == "tcp" else socket.SOCK_DGRAM
        family = socket.AF_INET6 if ":" in wish["host"] else socket.AF_INET
        client = socket.socket(family, kind)
        try:
            client.setblocking(False)
            if kind == socket.SOCK_STREAM:  # UDP sockets that may share a port are given the same one now and then
                client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if wish.get("source") or wish.get("source_port"):
                client.bind(
                    (wish.get("source") or ("::" if family == socket.AF_INET6 else ""), wish.get("source_port", 0))
                )
            timeout = wish.get("timeout", 2)
            loop = asyncio.get_running_loop()
            await asyncio.wait_for(loop.sock_connect(client, (wish["host"], wish["port"])), timeout)
            for number in range(wish.get("requests", 1)):
                if number and wish.get("pause"):
                    await asyncio.sleep(wish["pause"])
                sent = time.monotonic()
                answers.append(await ask(client, kind, wish, timeout))
                longest = max(longest, time.monotonic() - sent)
        except TimeoutError as reason:
            error = "ETIMEDOUT" if reason.errno else "timeout"
        except Closed:
            error = "closed"
        except OSError as reason:
            error = errno.errorcode.get(reason.errno or 0, str(reason))
        finally:
            client.close()
        whole = time.monotonic() - start
    return {
        "answers": answers,
        "error": error,
        "milliseconds": round(whole * 1e3, 2),
        "longest": round(longest * 1e3, 2),
    }


async def ask(client: socket.socket, kind: int, wish: dict[str, Any], timeout: float) -> str:
    """One round trip; raises OSError, TimeoutError among them."""
    loop = asyncio.get_running_loop()
    request = b"x" * (wish.get("size", 1) - 1) + b"\n"
    for left in reversed(range(wish.get("tries", 1) if kind == socket.SOCK_DGRAM else 1)):
        await loop.sock_sendall(client, request)
        try:
            return await asyncio.wait_for(receive(client, kind), timeout)
        except TimeoutError:
            if not left:
                raise
    raise AssertionError("tries is at least 1")


async def receive(client: socket.socket, kind: int) -> str:
    loop = asyncio.get_running_loop()
    data = b""
    while not data.endswith(b"\n"):
        part = await loop.sock_recv(client, MOST)
        if not part and kind == socket.SOCK_STREAM:
            raise Closed
        data += part
    return data.decode().strip()


async def main() -> None:
    slots = asyncio.Semaphore(AT_ONCE)
    results = await asyncio.gather(*(probe(wish, slots) for wish in json.load(sys.stdin)))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
