"""What the parts with a real switch share: an Open vSwitch with our bridge and one for ovs-ofctl, and a cluster."""

from pathlib import Path
from time import perf_counter

import msgspec

from bench.cluster import FIRST_DATAPATH, Object, changes
from bench.openvswitch import OFCTL, OURS, Observer, OpenVSwitch
from bench.options import Options
from bench.product import COLD_PATIENCE, Product
from controller.session import Session
from pipelines.model import Change


class Moments(msgspec.Struct, frozen=True):
    """Of one cold sync, in seconds after the JSON of the objects was handed over."""

    translated: float
    compiled: float
    published: float
    committed: float
    visible: float

    @property
    def from_objects(self) -> float:
        return self.committed - self.translated


class Site:
    """One Open vSwitch with a bridge for us and one for ovs-ofctl, and a cluster to bring there."""

    def __init__(self, options: Options, directory: Path) -> None:
        self.options = options
        self.cluster = options.cluster
        self.objects: list[Object] = self.cluster.objects()
        self.directory = directory
        self.ovs = OpenVSwitch(directory)
        self.ovs.add_bridge(OURS, FIRST_DATAPATH)
        self.ovs.add_internal_ports(OURS, "gw0", "uplink")
        self.ovs.add_bridge(OFCTL, 0xB00)
        self.observer = Observer(directory, OURS)
        self.product = Product()

    def cold(self) -> Moments:
        """A new controller brings everything to an empty bridge. It stays connected, and is ours until the next one."""
        self.product.close()
        self.ovs.no_controller(OURS)
        self.ovs.empty(OURS)
        self.product = product = Product()
        self.ovs.set_controller(OURS, product.port)
        product.await_connection(FIRST_DATAPATH)
        began = perf_counter()
        values: list[Change] = list(changes(self.objects))
        translated = perf_counter()
        product.apply(values)
        product.await_first()
        compiled, published = product.timing.compiled, product.timing.published
        product.await_committed([FIRST_DATAPATH], COLD_PATIENCE)
        committed = perf_counter()
        self._check()
        self._await_flows()
        visible = perf_counter()
        return Moments(*(at - began for at in (translated, compiled, published, committed, visible)))

    def _check(self) -> None:
        """A figure of a part of the work would be worth nothing."""
        for what in (self.product.compiler.problems(), self.product.fleet.errors, self.session.writer.exceptions):
            if what:
                raise AssertionError(f"not everything was brought to the switch: {what}")

    def _await_flows(self) -> None:
        wanted = self.session.flows
        while (there := self.observer.flows()) != wanted:
            if there > wanted:
                raise AssertionError(f"{there} flows in the switch, {wanted} were sent")

    @property
    def session(self) -> Session:
        return self.product.session(FIRST_DATAPATH)
