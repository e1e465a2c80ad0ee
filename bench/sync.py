"""Cold sync: a controller that has just started, an empty switch, all services at once."""

from pathlib import Path
from time import perf_counter

from bench.figures import Comparison, Report, Series, Verdict, milliseconds
from bench.ofctl import Ofctl, everything
from bench.options import Options
from bench.ovn import Ovn, balancers, no_balancers
from bench.site import Moments, Site

PART = "sync"


def measure(options: Options, directory: Path) -> Report:
    site = Site(options, directory)
    ofctl = Ofctl(site.ovs, directory)
    ovn = Ovn(site.ovs) if options.ovn else None
    site.cold()  # not counted: caches fill and modules load
    lines = everything(site.product, site.session.scopes)
    ours: list[Moments] = []
    bundles, commits, commands = [], [], []
    for _ in range(options.repetitions):
        ours.append(site.cold())
        ofctl.empty()
        bundles.append(milliseconds(ofctl.bundle(lines)))
        if ovn is not None:
            began = perf_counter()
            commits.append(milliseconds(ovn.apply(balancers(site.cluster))))
            commands.append(milliseconds(perf_counter() - began))
            ovn.apply(no_balancers(site.cluster))

    def mine(what: str, values: list[float]) -> Series:
        return Series(what, "ms", [milliseconds(value) for value in values])

    bundle = Series("ovs-ofctl bundle, same flows and groups", "ms", bundles)
    commit = Series("OVN: northbound commit → flows", "ms", commits) if commits else None
    command = Series("OVN: ovn-nbctl started → flows", "ms", commands) if commands else None
    committed = mine("objects → committed", [each.committed - each.translated for each in ours])
    rows = [
        Comparison(PART, committed, commit),
        Comparison(PART, mine("objects → visible in the switch", [e.visible - e.translated for e in ours]), bundle),
        Comparison(PART, mine("JSON of the objects → committed", [each.committed for each in ours]), command),
        Comparison(PART, mine("  of which: JSON → values", [each.translated for each in ours])),
        Comparison(PART, mine("  compile", [each.compiled - each.translated for each in ours])),
        Comparison(PART, mine("  encode", [each.published - each.compiled for each in ours])),
        Comparison(
            PART, mine("  read back, write, commit", [each.committed - each.published for each in ours]), bundle
        ),
        Comparison(PART, Series("flows and groups", "", [float(len(lines))])),
    ]
    if commit is None:
        return Report(rows)
    return Report(rows, [Verdict("cold sync is no slower than OVN", committed.median <= commit.median)])
