"""`make demo`: a cluster on this machine and a tour through it, every step of which is observed, not assumed.

Exit status 0 only when each step was seen. KEEP=1 leaves the cluster running and says what to try.
"""

import os
import shutil
import sys
import time
from pathlib import Path

from lab.cluster import Lab
from lab.netns import LabError
from lab.product import Product
from lab.tour import inspection, nodes, services
from lab.tour.stage import NotSeen, Stage, console

INTERRUPTED = 130  # as shells say of what SIGINT ended
EXAMPLE = Path(__file__).parent.parent / "examples" / "demo"

STEPS = (
    nodes.nodes,
    nodes.direct,
    nodes.unknown,
    nodes.router,
    services.cluster_ip,
    services.live,
    services.from_outside,
    services.local_policy,
    services.affinity,
    services.refused,
    nodes.tunnel,
    inspection.rest,
)


def tour(lab: Lab, product: Product, manifests: Path) -> None:
    """Raises NotSeen or LabError at the first step that does not show what it should."""
    for backend in services.BACKENDS:
        lab.echo(backend, tcp=[8080], udp=[5353])
    with console.status("waiting for the controller and its three switches"):
        product.wait_ready()
    stage = Stage(lab, product, manifests)
    for number, step in enumerate(STEPS, 1):
        console.print(f"\n[bold]{number}. {step.__doc__}[/bold]")
        step(stage)
        console.print("  [green]seen[/green]")


def main() -> int:
    name, keep = os.environ.get("NAME", "demo"), os.environ.get("KEEP") == "1"
    began = time.monotonic()
    lab = Lab(name, EXAMPLE)
    left_running = False
    try:
        with console.status(f"building lab {name}: three nodes with an Open vSwitch each, a router, pods"):
            lab.up(replace=True)
        manifests = lab.state / "manifests"
        shutil.copytree(EXAMPLE, manifests)
        # `annotation` alone, so that taking the annotation away makes a MAC unknown; by default a switch tells its own.
        product = Product(lab, manifests, {"mac_sources": ["annotation"]}).start()
        tour(lab, product, manifests)
        console.print(f"\n[green]every step was seen[/green], in {time.monotonic() - began:.0f} s")
        if keep:
            left_running = True
            _what_to_try(name, manifests)
    except (NotSeen, LabError) as error:
        console.print(f"\n[red]not seen:[/red] {error}")
        return 1
    except KeyboardInterrupt:
        console.print("\n[red]interrupted[/red]")
        return INTERRUPTED
    finally:
        if not left_running:
            with console.status("taking the lab down"):
                lab.down()
    return 0


def _what_to_try(name: str, manifests: Path) -> None:
    lab, asked = "signalbox lab", f"signalbox lab exec --name {name} controller -- signalbox"
    console.print(f"\nThe lab stays, in `traffic_mode: hybrid`. The controller follows {manifests}: edit it and look.")
    console.print(f"Its log is {manifests.parent / 'controller.log'}. Things to try:\n")
    for words in (
        f"{lab} exec --name {name} a -- ping -c3 10.10.2.10",
        f"{lab} exec --name {name} a -- curl -s http://10.96.0.80/",
        f"{asked} status",
        f"{asked} nodes n1",
        f"{asked} pods",
        f"{asked} services shop",
        f"{asked} flows --node n1 --table route",
        f"{asked} diff",
        f"signalbox trace {manifests} --node n1 --in pod:default/a 'tcp,10.10.1.10->10.96.0.80:80' --reply",
        f"{lab} exec --name {name} n1 -- ovs-ofctl -OOpenFlow15 dump-flows br0 table=42",
        f"{lab} status --name {name}",
        f"{lab} sync --name {name} {manifests}  # after a Pod was added or removed",
        f"{lab} down --name {name}",
    ):
        console.print(f"  .venv/bin/{words}")


if __name__ == "__main__":
    sys.exit(main())
