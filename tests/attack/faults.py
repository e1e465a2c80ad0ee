"""Faults of every part of a running lab, in an order that follows from a seed."""

import os
import random
import signal
import time
from collections.abc import Callable

from lab import switch
from lab.cluster import Lab
from lab.product import Product


class Faults:
    """Each fault names no node: it meets one by chance. What is frozen is thawed after a while, and at the end."""

    def __init__(self, lab: Lab, product: Product, chosen: random.Random) -> None:
        self._lab, self._product, self._chosen = lab, product, chosen
        self._frozen: dict[int, float] = {}  # process, and when it may go on

    def loop(self, seconds: float, change: Callable[[], None]) -> None:
        """`change` is a change of the cluster, one of the things that happen."""
        faults = (self.restart, self.crash, self.database, self.cut, self.renumber, self.flush, self.freeze)
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                self._chosen.choice((*faults, change, change))()
                time.sleep(self._chosen.random() * 0.7)
                self.thaw(time.monotonic())
        finally:
            self.thaw()

    @property
    def _node(self) -> str:
        return self._chosen.choice(self._lab.plan.nodes).name

    def thaw(self, now: float = float("inf")) -> None:
        for pid in [pid for pid, due in self._frozen.items() if due <= now]:
            os.kill(pid, signal.SIGCONT)
            del self._frozen[pid]

    def freeze(self) -> None:
        """A switch that is there and does nothing: for less, and for more, than what it takes to notice."""
        pid = switch.pid(self._lab.switch_directory(self._node), "ovs-vswitchd")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        self._frozen[pid] = time.monotonic() + self._chosen.choice((0.3, 1, 5))

    def restart(self) -> None:
        """The controller dies and comes back."""
        self._product.kill()
        time.sleep(self._chosen.random())
        self._product.start()

    def crash(self) -> None:
        self.thaw()
        node = self._node
        self._lab.kill_vswitchd(node)
        self._lab.start_vswitchd(node)

    def database(self) -> None:
        """ovsdb-server dies and comes back."""
        node = self._node
        directory = self._lab.switch_directory(node)
        pid = switch.pid(directory, "ovsdb-server")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        self._lab.run(node, *switch.database(directory))

    def cut(self) -> None:
        """The cable between a node and the controller."""
        node = self._node
        self._lab.set_link(node, up=False, management=True)
        time.sleep(self._chosen.random())
        self._lab.set_link(node, up=True, management=True)

    def renumber(self) -> None:
        self.thaw()
        self._lab.renumber_port(self._node, self._chosen.choice(("eth1", "gw0")), self._chosen.randint(20, 99))

    def flush(self) -> None:
        """Somebody deletes all flows."""
        self.thaw()
        self._lab.flush_flows(self._node)
