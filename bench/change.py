"""One endpoint of one of many services is replaced by another, again and again."""

from pathlib import Path
from time import perf_counter

from bench.cluster import ENDPOINT_PORT, FIRST_DATAPATH, changes
from bench.figures import Comparison, Report, Series, Verdict, milliseconds, percentile
from bench.ofctl import Ofctl, difference, everything
from bench.options import Options
from bench.ovn import Ovn, balancer, balancers
from bench.site import Site
from pipelines.addresses import Ip
from pipelines.derived import tuple_key
from pipelines.model import Protocol
from pipelines.unit import FLEET, UnitKey

PART = "change"
AIM = 10  # ms
A_PEER_EVERY = 10  # pairs of changes


def measure(options: Options, directory: Path) -> Report:
    site = Site(options, directory)
    ofctl = Ofctl(site.ovs, directory)
    ovn = Ovn(site.ovs) if options.ovn else None
    site.cold()
    product = site.product
    ofctl.empty()
    ofctl.bundle(everything(product, site.session.scopes))
    if ovn is not None:
        ovn.apply(balancers(site.cluster))
    product.recover([FIRST_DATAPATH])
    committed, visible, bundles, commits, commands = [], [], [], [], []

    def change(service: int, endpoints: list[Ip], new: Ip) -> None:
        raw = [site.cluster.slice(service, endpoints)]
        key = UnitKey("services.endpoint", FLEET, tuple_key(new, Protocol.TCP, ENDPOINT_PORT))
        began = perf_counter()
        product.apply(changes(raw))
        product.await_committed([FIRST_DATAPATH])
        committed.append(milliseconds(perf_counter() - began))
        (flow,) = product.fleet.units[FLEET][key].flows.values()
        while not site.observer.holds(flow.cookie):
            pass
        visible.append(milliseconds(perf_counter() - began))

    def follow(service: int, endpoints: list[Ip]) -> None:
        assert product.newest is not None
        bundles.append(milliseconds(ofctl.bundle(difference(product, product.newest))))
        if ovn is not None:
            began = perf_counter()
            commits.append(milliseconds(ovn.apply(balancer(site.cluster, service, endpoints))))
            commands.append(milliseconds(perf_counter() - began))

    for number in range(max(1, options.changes // 2)):
        service = number * 7 % options.services
        before = site.cluster.endpoint_addresses(service)
        spare = site.cluster.spare_address(number)
        after = [spare, *before[1:]]
        for endpoints, new in ((after, spare), (before, before[0])):
            change(service, endpoints, new)
            if number % A_PEER_EVERY == 0:
                follow(service, endpoints)

    ours = Series("event → committed", "ms", committed)
    p99 = milliseconds(percentile(committed, 99) / 1000)
    bundle = Series("ovs-ofctl bundle, same change", "ms", bundles)
    rows = [
        Comparison(PART, ours, Series("OVN: northbound commit → flows", "ms", commits) if commits else None),
        Comparison(PART, Series("event → visible in the switch", "ms", visible), bundle),
        Comparison(PART, Series("event → committed, 99th percentile", "ms", [p99])),
    ]
    if commands:
        rows[2] = Comparison(PART, rows[2].ours, Series("OVN: ovn-nbctl started → flows", "ms", commands))
    return Report(rows, [Verdict(f"one change takes under {AIM} ms (99th percentile)", p99 < AIM)])
