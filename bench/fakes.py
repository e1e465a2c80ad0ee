"""Many switches at once: one controller brings everything to switches that are fakes, in another process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time

from msgspec import Struct

from bench import ryu_encoding
from bench.cluster import FIRST_DATAPATH, changes
from bench.figures import Comparison, Report, Series, milliseconds
from bench.options import Options
from bench.product import Product, until
from lab import netns
from pipelines.model import Change
from pipelines.unit import FLEET

PART = "fakes"
PATIENCE, NAP = 180, 0.005  # seconds
MEGABYTE = 1e6
REPETITIONS = 3


class Delivery(Struct, frozen=True):
    """One repetition. Seconds; `processor`: of this process from the publication on."""

    flow_mods: int
    seconds: float
    processor: float
    sent: int
    encoded: int
    stall_compiling: float
    stall_delivering: float


def measure(options: Options, directory: Path) -> Report:
    del directory
    netns.run(["ip", "link", "set", "lo", "up"])
    values = list(changes(options.cluster.objects()))
    before = _resident()
    deliveries, rates = [], []
    for _ in range(min(REPETITIONS, options.repetitions)):
        product = Product()
        with _fakes(product, options):
            deliveries.append(_deliver(product, options, values))
        after = _resident()
        units = product.fleet.units[FLEET].values()
        rates.append(ryu_encoding.rate(ryu_encoding.sample(product.compiler.units, units)))
        product.close()
    growth = Series("memory of the controller beyond an empty one", "MB", [(after - before) / MEGABYTE])

    def series(what: str, unit: str, values: Iterator[float]) -> Comparison:
        return Comparison(PART, Series(what, unit, list(values)))

    spent = series(
        "flow mods by second of the controller's processor", "/s", (d.flow_mods / d.processor for d in deliveries)
    )
    return Report(
        [
            series("flow mods delivered in all", "", (float(d.flow_mods) for d in deliveries)),
            series("flow mods delivered by second", "/s", (d.flow_mods / d.seconds for d in deliveries)),
            Comparison(PART, spent.ours, Series("Ryu encoding such flows, and nothing else", "/s", rates)),
            series("bytes sent", "MB", (d.sent / MEGABYTE for d in deliveries)),
            series(
                "share of them encoded for another switch already",
                "%",
                (100 - 100 * d.encoded / d.sent for d in deliveries),
            ),
            series(
                "longest hub stall, compiling and encoding", "ms", (milliseconds(d.stall_compiling) for d in deliveries)
            ),
            series("longest hub stall, delivering", "ms", (milliseconds(d.stall_delivering) for d in deliveries)),
            Comparison(PART, growth),
        ]
    )


@contextmanager
def _fakes(product: Product, options: Options) -> Iterator[None]:
    """As many as wanted, connected."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "bench.switches", str(product.port), str(options.switches)]
    )
    try:
        until(lambda: len(product.switches.sessions()) == options.switches, nap=NAP)
        yield
    finally:
        process.kill()
        process.wait()


def _deliver(product: Product, options: Options, values: list[Change]) -> Delivery:
    dpids = range(FIRST_DATAPATH, FIRST_DATAPATH + options.switches)
    product.stall = 0.0
    product.apply(values)
    product.await_first(nap=NAP)
    stall, product.stall = product.stall, 0.0
    began, processor = perf_counter(), process_time()
    product.await_committed(dpids, PATIENCE, NAP)
    seconds, spent = perf_counter() - began, process_time() - processor
    sessions = [product.session(dpid) for dpid in dpids]
    units = [unit for by_key in product.fleet.units.values() for unit in by_key.values()]
    encoded = sum(len(flow.message) for unit in units for flow in unit.flows.values())
    encoded += sum(len(group.message) for unit in units for group in unit.groups.values())
    return Delivery(
        flow_mods=sum(session.writer.flow_mods_sent for session in sessions),
        seconds=seconds,
        processor=spent,
        sent=sum(session.connection.bytes_sent for session in sessions),
        encoded=encoded,
        stall_compiling=stall,
        stall_delivering=product.stall,
    )


def _resident() -> float:
    """Bytes of memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
