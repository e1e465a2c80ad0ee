"""ovs-ofctl beside us: the flows and groups that we write, as text, in one bundle."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter

from bench.openvswitch import OFCTL, OpenVSwitch
from bench.product import Product
from controller.settings import SwitchSettings
from pipelines.flow import Flow
from pipelines.text import flow_text, group_text
from pipelines.unit import Revision, Scope, UnitKey


class Ofctl:
    """Writes to a bridge of its own."""

    def __init__(self, ovs: OpenVSwitch, directory: Path) -> None:
        self._ovs = ovs
        self._file = directory / "bundle.txt"

    def empty(self) -> None:
        """With the meters that our flows name: bundles take no meters."""
        self._ovs.empty(OFCTL)
        for number, rate, burst in SwitchSettings().meters:
            band = f"type=drop,rate={rate},burst_size={burst}"
            self._ovs.ofctl("add-meter", OFCTL, f"meter={number},pktps,burst,bands={band}")

    def bundle(self, lines: Iterable[str]) -> float:
        """Seconds from the start of the program, which reads a file of lines, to its end."""
        self._file.write_text("".join(f"{line}\n" for line in lines))
        began = perf_counter()
        self._ovs.ofctl("bundle", OFCTL, str(self._file))
        return perf_counter() - began

    def replace(self, lines: Iterable[str]) -> float:
        """Seconds of `replace-flows` with flows that are there: it reads them, compares, and has nothing to send."""
        prefix = "flow add "
        flows = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        self._file.write_text("".join(f"{line}\n" for line in flows))
        began = perf_counter()
        self._ovs.ofctl("replace-flows", OFCTL, str(self._file))
        return perf_counter() - began


def everything(product: Product, scopes: Iterable[Scope]) -> list[str]:
    """Lines of a bundle file that bring an empty bridge to what a switch of these scopes holds: groups, then flows."""
    wanted = set(scopes)
    keys = [key for key in product.compiler.units if key.scope in wanted]
    groups = [f"group add {group_text(group)}" for key in keys for group in product.compiler.units[key].groups]
    return groups + [f"flow add {line}" for key in keys for line in _flows(product, key)]


def difference(product: Product, revision: Revision) -> list[str]:
    """Lines that bring a bridge from before a revision to after it."""
    groups, flows, gone = [], [], []
    for key, old, new in revision.changes:
        groups += [f"group add_or_mod {group_text(group)}" for group in new.groups]
        flows += [f"flow add {line}" for line in _flows(product, key)] if new else []
        staying = {flow.key for flow in new.flows}
        gone += [f"flow delete_strict {_condition(flow)}" for flow in old.flows if flow.key not in staying]
    return groups + flows + gone


def _flows(product: Product, key: UnitKey) -> Iterator[str]:
    encoded = product.fleet.units[key.scope][key]
    for flow, one in zip(product.compiler.units[key].flows, encoded.flows.values(), strict=True):
        yield flow_text(flow, cookie=one.cookie)


def _condition(flow: Flow) -> str:
    return flow_text(flow).partition(" actions=")[0]
