"""One core, no switch: values to flows, and flows to bytes."""

import gc
from pathlib import Path
from time import perf_counter

from bench import ryu_encoding
from bench.cluster import changes
from bench.figures import Comparison, Report, Series, Verdict
from bench.options import Options
from controller.encode import Xids, encode_unit
from pipelines.compiler import Compiler
from pipelines.features import NUMBERS

PART = "encode"
AIM = 100_000  # flow mods by second


def measure(options: Options, directory: Path) -> Report:
    del directory
    values = list(changes(options.cluster.objects()))
    compiles, encodes, rates = [], [], []
    for _ in range(options.repetitions):
        gc.collect()
        compiler = Compiler()
        began = perf_counter()
        compiler.run(values)
        compiles.append(len(compiler.units) / (perf_counter() - began))
        gc.collect()
        began = perf_counter()
        xids = Xids()
        encoded = [encode_unit(key, NUMBERS[key.feature], unit, None, xids) for key, unit in compiler.units.items()]
        encodes.append(sum(len(unit.flows) for unit in encoded) / (perf_counter() - began))
        gc.collect()
        rates.append(ryu_encoding.rate(ryu_encoding.sample(compiler.units, encoded)))
    ours = Series("flow mods encoded, with their groups", "/s", encodes)
    return Report(
        [
            Comparison(PART, ours, Series("Ryu encoding such flows, without groups", "/s", rates)),
            Comparison(PART, Series("units compiled", "/s", compiles)),
        ],
        [Verdict(f"own encoding is at least {AIM:,} flow mods by second", ours.median >= AIM)],
    )
