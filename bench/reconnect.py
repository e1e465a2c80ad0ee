"""The connection breaks and comes back while nothing has changed: nothing may be written."""

from pathlib import Path
from time import perf_counter

from bench.cluster import FIRST_DATAPATH
from bench.figures import Comparison, Report, Series, Verdict, milliseconds
from bench.ofctl import Ofctl, everything
from bench.options import Options
from bench.ovn import Ovn, balancers
from bench.product import until
from bench.site import Site

PART = "reconnect"


def measure(options: Options, directory: Path) -> Report:
    site = Site(options, directory)
    ofctl = Ofctl(site.ovs, directory)
    ovn = Ovn(site.ovs) if options.ovn else None
    site.cold()
    lines = everything(site.product, site.session.scopes)
    ofctl.empty()
    ofctl.bundle(lines)
    if ovn is not None:
        ovn.apply(balancers(site.cluster))
    ready, sent, replaced, restarts = [], [], [], []
    for _ in range(options.repetitions):
        seconds, mods = _reconnect(site)
        ready.append(milliseconds(seconds))
        sent.append(float(mods))
        replaced.append(milliseconds(ofctl.replace(lines)))
        if ovn is not None:
            began = perf_counter()
            ovn.restart_controller()
            restarts.append(milliseconds(perf_counter() - began))
    restart = Series("OVN: ovn-controller restarted → in sync", "ms", restarts) if restarts else None
    rows = [
        Comparison(
            PART,
            Series("handshake done → ready", "ms", ready),
            Series("ovs-ofctl replace-flows, nothing new", "ms", replaced),
        ),
        Comparison(PART, Series("the same", "ms", ready), restart),
        Comparison(PART, Series("flow and group mods sent", "", sent)),
    ]
    duty = Verdict("a reconnect with no change sends no flow or group mod", not any(sent), duty=True)
    return Report(rows if restart else [rows[0], rows[2]], [duty])


def _reconnect(site: Site) -> tuple[float, int]:
    """Seconds from the end of the handshake until ready, and flow and group mods sent.

    Not from the connection on: Open vSwitch 3.1 looks for the controller's hello only when something else wakes it,
    which is half a second later in an idle one.
    """
    product = site.product
    old = site.session
    old.connection.close("the bench breaks the connection")
    until(lambda: product.switches.session(FIRST_DATAPATH) not in (None, old))
    began = perf_counter()
    product.await_committed([FIRST_DATAPATH])
    writer = site.session.writer
    return perf_counter() - began, writer.flow_mods_sent + writer.group_mods_sent
