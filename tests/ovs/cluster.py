"""A lab with the product on it and an echo server in every place: what all tests of this folder stand on."""

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import Struct

from lab.cluster import Lab
from lab.product import Product
from lab.switch import BRIDGE
from lab.traffic import Answer, Probe
from tests.ovs import wire, world
from tests.ovs.objects import Manifests, Object
from tests.ovs.wire import Frame

HERE = Path(__file__).parent
PATIENCE = 40.0
LEARNED = re.compile(r"cookie=0x5b.[13579bdf]")  # flows that the switch has made itself
REVALIDATION = 0.6  # seconds in which Open vSwitch looks at its cached decisions again

# Settings of all tests: cells that are refused come in bursts that no real client makes.
SETTINGS = {"reject_rate": 2000, "echo_interval": 1, "echo_timeout": 4}


Held = dict[str, tuple[list[str], list[str]]]  # by node: flows, groups


class Cluster:
    """`objects` None: the world of world.py. `settings`: of the product, beside SETTINGS; `options`: of the lab."""

    def __init__(
        self,
        name: str,
        directory: Path,
        settings: Mapping[str, Any] | None = None,
        objects: Iterable[Object] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.manifests = Manifests(directory)
        self.manifests.put(*(world.everything() if objects is None else objects))
        self.lab = Lab(name, directory, **(options or {}))
        self.product = Product(self.lab, directory, {**SETTINGS, **(settings or {})})

    def __enter__(self) -> Self:
        self.lab.up()
        try:
            self.product.start()
            for place in [node.name for node in self.lab.plan.nodes] + [pod.name for pod in self.lab.plan.pods]:
                self.serve(place)
            for place in world.OUTSIDE:
                self.serve(place)
        except BaseException:
            self.lab.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.lab.down()

    def serve(self, place: str) -> None:
        ports = world.PORTS
        self.lab.echo(place, name=place, tcp=[ports["tcp"].target], udp=[ports["udp"].target])

    # --- waiting ------------------------------------------------------------------------------------------

    def wait(self, holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        self.product.wait(lambda: bool(holds()), what, seconds)

    def ready(self) -> Self:
        """Every switch carries everything, next hops have answered, and nothing was left out."""
        self.product.wait_ready()
        self.wait(self._routers_known, "the next hops to answer")
        self.level()
        assert self.product.get("/v1/status")["units_not_encoded"] == {}
        assert [row["exceptions"] for row in self.product.get("/v1/switches") if row["exceptions"]] == []
        return self

    def _routers_known(self) -> bool:
        """Those that are asked: of each node that has a switch, and of each family, at least one."""
        nodes = [node for node in self.product.get("/v1/nodes") if node["state"] == "READY"]
        rows = [(node["name"], router) for node in nodes for router in node["routers"]]
        asked = {(name, row["family"]) for name, row in rows if not row["problems"]}
        known = {(name, row["family"]) for name, row in rows if row["age_seconds"] is not None}
        return not self.product.settings.get("ask_routers", True) or asked <= known

    def put(self, *objects: Object) -> None:
        """Changes manifests and waits until every switch carries what follows."""
        with self.taken():
            self.manifests.put(*objects)

    def delete(self, kind: str, *names: str) -> None:
        with self.taken():
            self.manifests.delete(kind, *names)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """What is done to the manifests changes flows; returns when every switch carries what follows."""
        before = self.product.get("/v1/status")["revision"]
        yield
        self.settle()
        assert self.product.get("/v1/status")["revision"] != before, "no flow has changed"

    def settle(self) -> None:
        """Until everything that the manifests say now was read, and every switch carries what follows."""
        written = time.monotonic()
        self.wait(lambda: time.monotonic() - self._age() > written, "the manifests to be read")
        self.level()

    def _age(self) -> float:
        """Seconds: what was in the directory so long ago was all handed over."""
        age: float | None = self.product.get("/v1/status")["source"]["current_age_seconds"]
        return float("inf") if age is None else age

    def level(self) -> None:
        """Until what was read is compiled, and every switch that is connected has the newest revision."""
        self.wait(self._is_level, "all switches to have the newest revision")

    def _is_level(self) -> bool:
        status = self.product.get("/v1/status")
        carried = {row["revision"] for row in self.product.get("/v1/switches") if row["state"] == "READY"}
        return not status["changes_pending"] and carried <= {status["revision"]}

    def revalidated(self, *nodes: str) -> None:
        """Until the switches of these nodes, or of all, have looked at every cached decision again."""
        for node in nodes or [node.name for node in self.lab.plan.nodes]:
            for _ in range(2):  # the first to end may have begun before the flows changed
                self.lab.appctl(node, "revalidator/wait")

    def switched(self, node: str) -> None:
        """Until a node's switch has done with the few packets that its ports hold by now.

        One thread of it does both: it answers a command once in each of its turns, and in each turn it takes up to 32
        packets from each port.
        """
        for _ in range(2):
            self.lab.appctl(node, "version")

    def state(self, node: str) -> str:
        return next((row["state"] for row in self.product.get("/v1/switches") if row["node"] == node), "absent")

    def sent(self) -> int:
        """Flow and group mods that this run of the controller has sent to all switches."""
        rows = self.product.get("/v1/switches")
        return sum(row["flow_mods_sent"] + row["group_mods_sent"] for row in rows)

    # --- switches -----------------------------------------------------------------------------------------

    def flows(self, node: str, match: str = "") -> list[str]:
        """`ovs-ofctl dump-flows` without counters and ages, sorted; only what matches, and nothing learned."""
        words = [match] if match else []
        lines = self.lab.ofctl(node, "--no-stats", "dump-flows", BRIDGE, *words).splitlines()
        return sorted(line.strip() for line in lines if "actions=" in line and not LEARNED.search(line))

    def groups(self, node: str) -> list[str]:
        lines = self.lab.ofctl(node, "dump-groups", BRIDGE).splitlines()
        return sorted(line.strip() for line in lines if "group_id=" in line)

    def held(self) -> Held:
        """What every switch holds."""
        return {node.name: (self.flows(node.name), self.groups(node.name)) for node in self.lab.plan.nodes}

    @contextmanager
    def there_and_back(self, at_first: Held) -> Iterator[None]:
        """What the block changes is undone after it, unless it has done so itself; then all is held as at first."""
        files = self.manifests.content()
        yield
        if self.manifests.content() != files:
            self.manifests.restore(files)
        self.wait(lambda: self.held() == at_first, "the switches to be as before")

    def youngest(self, node: str) -> float:
        """Seconds since the last flow of a node was written."""
        dump = self.lab.ofctl(node, "dump-flows", BRIDGE).splitlines()
        ages = [re.search(r"duration=([0-9.]+)s", line) for line in dump if not LEARNED.search(line)]
        return min(float(age[1]) for age in ages if age)

    def packets(self, node: str, match: str) -> int:
        """Packets that these flows have counted."""
        dump = self.lab.ofctl(node, "dump-flows", BRIDGE, match)
        return sum(int(count) for count in re.findall(r"n_packets=(\d+)", dump))

    def check_paths(self) -> None:
        """New connections along every kind of path."""
        with self.streams() as streams:
            pass
        assert streams.broken == {}

    # --- traffic ------------------------------------------------------------------------------------------

    def ask_all(self, wishes: Mapping[str, list[Probe]], timeout: float = 60) -> dict[str, list[Answer]]:
        """All places at once; the answers by place."""
        started = {place: self.lab.start_probes(place, probes) for place, probes in wishes.items() if probes}
        return {place: probing.answers(timeout) for place, probing in started.items()}

    def echoes(self, wishes: Mapping[str, list[str]]) -> dict[str, dict[str, list[int]]]:
        """Two pings from every place to every address: place → address → hop limits of the answers."""
        started = {
            place: self.lab.popen(place, sys.executable, "-IS", str(HERE / "echoes.py"), *targets)
            for place, targets in wishes.items()
            if targets
        }
        found = {}
        for place, process in started.items():
            output, errors = process.communicate(timeout=30)
            assert not process.returncode, errors
            found[place] = wire.decode_json(output)
        return found

    def in_turn(self, client: str, wishes: Collection[Probe]) -> list[Answer]:
        """Of TCP connections from one port: each begins when the one before it is made, and lasts on beside it."""
        running = []
        for wish in wishes:
            running.append(self.lab.start_probes(client, [wish]))
            self.wait(partial(self._made, client, wish.source_port, len(running)), f"a connection to {wish.host}")
        return [answer for one in running for answer in one.answers()]

    def _made(self, client: str, port: int, number: int) -> bool:
        states = [
            line.split()[0] for line in self.lab.run(client, "ss", "-Htan", f"sport = :{port}").stdout.splitlines()
        ]
        return len(states) >= number and "SYN-SENT" not in states

    def datagrams(self, place: str, targets: Iterable[tuple[str, int]], port: int = 0) -> list[list[str]]:
        """All at once from one socket; for each answer HOST PORT NAME and as whom it saw the client (ADDRESS PORT)."""
        words = [word for host, number in targets for word in (host, str(number))]
        script = str(HERE / "datagrams.py")
        return [
            line.split()
            for line in self.lab.run(place, sys.executable, "-IS", script, str(port), *words).stdout.splitlines()
        ]

    def told(self, place: str, *wishes: tuple[str, int, int, int, int]) -> list[str]:
        """What the network says about datagrams, each HOST, PORT, HOPS, BYTES, LOCAL_PORT; see told.py."""
        words = [str(word) for wish in wishes for word in wish]
        found: list[str] = wire.decode_json(
            self.lab.run(place, sys.executable, "-IS", str(HERE / "told.py"), *words).stdout
        )
        return found

    def send(self, place: str, frames: Iterable[Any], device: str = "eth0") -> None:
        """Scapy frames, as they are."""
        script = str(HERE / "frames_out.py")
        text = "".join(f"{bytes(frame).hex()}\n" for frame in frames)
        self.lab.run(place, sys.executable, "-IS", script, device, stdin=text)

    @contextmanager
    def watched(self, place: str, device: str, expression: str = "") -> Iterator["Watched"]:
        """The frames of a device; the list is filled at the end."""
        capture = self.lab.capture(place, device, expression)
        frames = Watched(capture.path)
        try:
            yield frames
        finally:
            capture.stop()
        frames += wire.read(capture.path)

    @contextmanager
    def streams(
        self, only: Collection[tuple[str, str | world.Service]] | None = None, pause: float = 0.04
    ) -> "Iterator[Streams]":
        """TCP and UDP in both families along every kind of path, from before the block until after it.

        `only`: those of these clients to these services or places, by name or not of this world.
        """
        streams = Streams(self, STREAMS if only is None else only, pause)
        yield streams
        streams.end()


class Watched(list[Frame]):
    """Frames of a device, once the capture has ended; `now` has those that were written so far."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    @property
    def now(self) -> list[Frame]:
        return wire.read(self._path)


# Client and service (or place): local, peer and routed endpoints of pods, own and foreign hosts, hairpin; plain.
STREAMS = (
    ("a", "only-b"),
    ("a", "only-e"),
    ("a", "only-g"),
    ("b", "only-b"),
    ("a", "host-1"),
    ("a", "host-3"),
    ("n1", "only-b"),
    ("n1", "only-e"),
    ("n1", "only-g"),
    ("n1", "host-1"),
    ("d", "only-e"),
    ("c", "every"),
    ("a", "c"),
    ("d", "a"),
    ("n1", "c"),
    ("n2", "a"),
)


SPARED = 2  # of some two hundred: a switch that gets no processor for a moment drops what its ports cannot hold


class Stream(Struct, frozen=True):
    """What became of a stream; see stream.py."""

    sent: int
    answered: int
    breaks: tuple[str, ...]
    longest: float
    answers: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """No connection broke, and no more datagrams were lost than two busy cores lose by themselves."""
        return self.sent - self.answered <= SPARED and not self.breaks


class Streams:
    """`results` by label, once they have ended."""

    def __init__(self, cluster: Cluster, pairs: Collection[tuple[str, str | world.Service]], pause: float) -> None:
        self.results: dict[str, Stream] = {}
        self._labels: dict[str, list[str]] = {}
        wishes: dict[str, list[dict[str, object]]] = {}
        for number, (client, target) in enumerate(pairs):
            at = target if isinstance(target, world.Service) else world.SERVICES.get(target) or world.PLACES[target]
            for protocol in world.PROTOCOLS:
                of = world.PORTS[protocol]
                port = of.port if isinstance(at, world.Service) else of.target
                for family in sorted(set(at.addresses) & set(world.PLACES[client].addresses)):
                    wish = {"protocol": protocol, "host": at.addresses[family], "port": port, "pause": pause}
                    wishes.setdefault(client, []).append(wish)
                    self._labels.setdefault(client, []).append(f"{client} → {at.name} {protocol}{family} #{number}")
        self._running = {}
        for client, wish_list in wishes.items():
            process = cluster.lab.popen(client, sys.executable, "-IS", str(HERE / "stream.py"))
            assert process.stdin is not None
            process.stdin.write(json.dumps(wish_list) + "\n")
            process.stdin.flush()
            self._running[client] = process
        for client, process in self._running.items():
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said == "ready\n", f"streams of {client} do not start: {said}"

    def end(self) -> None:
        for process in self._running.values():
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None  # communicate() must not touch it again
        for client, process in self._running.items():
            output, errors = process.communicate(timeout=30)
            assert not process.returncode, errors
            found = msgspec.json.decode(output, type=list[Stream])
            self.results |= dict(zip(self._labels[client], found, strict=True))

    @property
    def broken(self) -> dict[str, Stream]:
        """Those that lost a datagram or a connection."""
        assert self.results, "they have not ended"
        return {label: result for label, result in self.results.items() if not result.whole}

    @property
    def longest(self) -> float:
        """Milliseconds without an answer, of the stream that waited longest."""
        return max(result.longest for result in self.results.values())


def spread(answers: Collection[Answer]) -> set[str]:
    """Who has answered; errors are among the names, so that none goes unnoticed."""
    return {name for answer in answers for name in answer.names} | {answer.error for answer in answers if answer.error}
