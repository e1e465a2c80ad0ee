"""One core, no switch: values to flows, and flows to bytes."""

import gc
from pathlib import Path
from time import process_time

from bench import ryu_encoding
from bench.cluster import changes
from bench.figures import Comparison, Report, Series, Verdict
from bench.options import Options
from bench.product import GC_THRESHOLDS
from controller.encode import EncodedUnit, Xids, encode_unit
from pipelines.compiler import Compiler
from pipelines.features import NUMBERS
from pipelines.unit import Unit, UnitKey

PART = "encode"
AIM = 100_000  # flow mods by second


def measure(options: Options, directory: Path) -> Report:
    del directory
    values = list(changes(options.cluster.objects()))
    compiles, flow_rates, group_rates, ryu = [], [], [], []
    gc.set_threshold(*GC_THRESHOLDS)
    for _ in range(options.repetitions):
        gc.collect()
        compiler = Compiler()
        began = process_time()
        compiler.run(values)
        compiles.append(len(compiler.units) / (process_time() - began))
        flows = {key: unit for key, unit in compiler.units.items() if unit.flows}
        groups = {key: unit for key, unit in compiler.units.items() if unit.groups}
        encoded, seconds = _encoded(flows)
        flow_rates.append(sum(len(unit.flows) for unit in encoded) / seconds)
        ryu.append(ryu_encoding.rate(ryu_encoding.sample(compiler.units, encoded)))
        encoded, seconds = _encoded(groups)
        group_rates.append(sum(len(unit.groups) for unit in encoded) / seconds)
    ours = Series("flow mods encoded", "/s", flow_rates)
    return Report(
        [
            Comparison(PART, ours, Series("Ryu encoding flows of services", "/s", ryu)),
            Comparison(PART, Series(f"group mods of {options.endpoints} buckets encoded", "/s", group_rates)),
            Comparison(PART, Series("units compiled", "/s", compiles)),
        ],
        [Verdict(f"own encoding is at least {AIM:,} flow mods by second", ours.median >= AIM)],
    )


def _encoded(units: dict[UnitKey, Unit]) -> tuple[list[EncodedUnit], float]:
    """All units, and how many seconds of this process that took: others on the machine do not count."""
    gc.collect()
    xids = Xids()
    began = process_time()
    made = [encode_unit(key, NUMBERS[key.feature], unit, None, xids) for key, unit in units.items()]
    return made, process_time() - began
