"""Streams that run until they are told to end, and what became of each. Run by path, as lab.probe is.

Standard input: a JSON list of {"protocol", "host", "port", "pause"} on one line; its end ends the streams. Standard
output: "ready" when each has had an answer or an error, or which have had neither; at the end a JSON list of

    {"sent": 250, "answered": 250,   requests and answers; UDP asks on whatever comes back, TCP waits for the answer
     "breaks": ["ECONNRESET"],       errors of TCP connections, each of which was made anew
     "longest": 21.3,                milliseconds of the longest time without an answer
     "answers": ["c 10.10.1.10"]}    who answered, and as whom it saw the client: each different one in order
"""

import asyncio
import errno
import json
import socket
import sys
import time
from typing import Any

FAREWELL = 1.0  # seconds for answers that are on their way
CONNECTING = 1.0  # seconds for a connection to be made
STARTING = 30.0  # seconds until every stream has its first answer
STALLED = 10.0  # seconds without an answer after which a connection is given up


class Stream:
    def __init__(self, wish: dict[str, Any], over: asyncio.Event) -> None:
        self.wish, self.over = wish, over
        self.sent = self.answered = 0
        self.breaks: list[str] = []
        self.answers: list[str] = []
        self.longest = 0.0
        self.last = time.monotonic()
        self.first = asyncio.Event()

    async def run(self) -> None:
        if self.wish["protocol"] == "udp":
            await self.datagrams()
        else:
            while not self.over.is_set():
                try:
                    await self.connection()
                except OSError as error:
                    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
                    self.breaks.append(name)
                    self.first.set()
                    await asyncio.sleep(self.wish["pause"])

    def take(self, text: bytes) -> None:
        now = time.monotonic()
        if self.answered:
            self.longest = max(self.longest, now - self.last)
        self.last = now
        self.answered += 1
        who = text.decode().rsplit(" ", 1)[0]
        if not self.answers or self.answers[-1] != who:
            self.answers.append(who)
        self.first.set()

    async def connection(self) -> None:
        opening = asyncio.open_connection(self.wish["host"], self.wish["port"])
        reader, writer = await asyncio.wait_for(opening, CONNECTING)
        try:
            while not self.over.is_set():
                self.sent += 1
                writer.write(b"x\n")
                line = await asyncio.wait_for(reader.readline(), STALLED)
                if not line.endswith(b"\n"):
                    raise ConnectionResetError(errno.ECONNRESET, "closed")
                self.take(line.strip())
                await asyncio.sleep(self.wish["pause"])
        finally:
            writer.close()

    async def datagrams(self) -> None:
        family = socket.AF_INET6 if ":" in self.wish["host"] else socket.AF_INET
        client = socket.socket(family, socket.SOCK_DGRAM)
        client.setblocking(False)
        client.connect((self.wish["host"], self.wish["port"]))
        reading = asyncio.create_task(self.read(client))
        while not self.over.is_set():
            self.sent += 1
            try:
                client.send(b"x\n")
            except OSError as error:
                self.breaks.append(errno.errorcode.get(error.errno or 0, str(error)))
            await asyncio.sleep(self.wish["pause"])
        end = time.monotonic() + FAREWELL
        while self.answered < self.sent and time.monotonic() < end:
            await asyncio.sleep(0.01)
        reading.cancel()
        client.close()

    async def read(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self.take((await loop.sock_recv(client, 2048)).strip())
            except OSError as error:
                self.breaks.append(errno.errorcode.get(error.errno or 0, str(error)))
                self.first.set()

    def result(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "answered": self.answered,
            "breaks": self.breaks,
            "longest": round(self.longest * 1e3, 1),
            "answers": self.answers,
        }


async def main() -> None:
    over = asyncio.Event()
    streams = [Stream(wish, over) for wish in json.loads(sys.stdin.readline())]
    running = asyncio.gather(*(stream.run() for stream in streams))
    try:
        await asyncio.wait_for(asyncio.gather(*(stream.first.wait() for stream in streams)), STARTING)
        print("ready", flush=True)
    except TimeoutError:
        print("no answer from", *(s.wish["host"] for s in streams if not s.first.is_set()), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    over.set()
    await running
    json.dump([stream.result() for stream in streams], sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
