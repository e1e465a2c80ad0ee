"""One core, no switch: values to flows, and flows to bytes."""

import gc
from pathlib import Path
from time import perf_counter

from bench import ryu_encoding
from bench.cluster import changes
from bench.figures import Comparison, Report, Series, Verdict
from bench.parts import Options
from controller.encode import EncodedUnit, Xids, encode_unit
from pipelines.compiler import Compiler
from pipelines.features import NUMBERS
from pipelines.unit import UnitKey

PART = "encode"
AIM = 100_000  # flow mods by second
RYU_FLOWS = 5000


def measure(options: Options, directory: Path) -> Report:
    del directory
    values = list(changes(options.cluster.objects()))
    compiles, encodes, rates = [], [], []
    encoded: dict[UnitKey, EncodedUnit] = {}
    for _ in range(options.repetitions):
        gc.collect()
        compiler = Compiler()
        began = perf_counter()
        compiler.run(values)
        compiles.append(len(compiler.units) / (perf_counter() - began))
        gc.collect()
        began = perf_counter()
        xids = Xids()
        encoded = {key: encode_unit(key, NUMBERS[key.feature], unit, None, xids) for key, unit in compiler.units.items()}
        flow_mods = sum(len(unit.flows) for unit in encoded.values())
        encodes.append(flow_mods / (perf_counter() - began))
        flows = [flow for unit in encoded.values() for flow in unit.flows.values()]
        sample = flows[:: max(1, len(flows) // RYU_FLOWS)]
        gc.collect()
        rates.append(ryu_encoding.rate(ryu_encoding.decoded(sample)))
    same = 100 * sum(map(ryu_encoding.equal, sample)) / len(sample)
    ours = Series("flow mods encoded, with their groups", "/s", encodes)
    return Report(
        [
            Comparison(PART, ours, Series("Ryu encoding the same flows", "/s", rates)),
            Comparison(PART, Series("  of which Ryu comes to the same bytes", "%", [same])),
            Comparison(PART, Series("units compiled", "/s", compiles)),
        ],
        [Verdict(f"own encoding is at least {AIM:,} flow mods by second", ours.median >= AIM)],
    )
