"""Reaching every node: straight, by the host, by a router that fails over, by tunnel."""

import re
import time
from functools import partial

from lab.tour.stage import Stage, console, expect, named, table

MAC_KEY = "node.antrea.io/mac-address"
ROUTED = "10.10.3.10"  # pod d on n3, in another subnet
PINGS, PAUSE = 100, 0.02  # seconds between two


def nodes(stage: Stage) -> None:
    """Nodes, and where the MAC of each uplink came from"""
    found = table("node", "addresses", "podCIDRs", "MAC of the uplink", "known from", "router's MAC")
    for row in stage.product.get("/v1/nodes"):
        mac = row["mac"] or {}
        expect(bool(mac), f"no MAC is known of {row['name']}")
        expect(row["state"] == "READY", f"the switch of {row['name']} is {row['state']}")
        stage.product.wait(partial(_has_router, stage, row["name"]), "the routers' MACs")
        found.add_row(
            row["name"],
            "\n".join(address.partition("/")[0] for address in row["addresses"]),
            "\n".join(row["pod_cidrs"]),
            mac["address"],
            mac["source"],
            stage.router(row["name"], 4)["mac"],
        )
    console.print(found)


def _has_router(stage: Stage, node: str) -> bool:
    return stage.router(node, 4) is not None


def direct(stage: Stage) -> None:
    """Pod a on n1 to pod c on n2: straight through the uplink"""
    for address in ("10.10.2.10", "fd00:10:2::10"):
        seen = stage.ping(address)
        expect(seen.by_gateway == 0, f"{seen.by_gateway} pings went through gw0")
        expect(seen.macs == {("aa:00:00:00:00:01", "aa:00:00:00:00:02")}, f"MACs on the wire: {seen.macs}")
        expect(seen.hop_limits == {63}, f"hop limits on the wire: {seen.hop_limits}")
        stage.say_path(address, seen)


def unknown(stage: Stage) -> None:
    """The same while nobody knows n2's MAC: by gw0 and the host's routing; then straight again"""
    stage.edit("nodes.yaml", lambda objects: named(objects, "Node", "n2")["metadata"]["annotations"].pop(MAC_KEY))
    stage.product.wait(lambda: stage.mac("n2") is None, "the MAC of n2 to be unknown")
    stage.settle()
    seen = stage.ping("10.10.2.10")
    expect(seen.by_gateway > 0, "nothing went through gw0")
    stage.say_path("10.10.2.10", seen)
    annotate = {MAC_KEY: "aa:00:00:00:00:02"}
    stage.edit("nodes.yaml", lambda objects: named(objects, "Node", "n2")["metadata"]["annotations"].update(annotate))
    stage.product.wait(lambda: stage.mac("n2") is not None, "the MAC of n2 to be known again")
    stage.settle()
    direct(stage)


def router(stage: Stage) -> None:
    """Pod a to pod d in another subnet: by the router, also when another router takes its place"""
    for when in ("before", "after"):
        mac = stage.lab.router_macs(0)[0]
        stage.settle()
        seen = stage.ping(ROUTED)
        expect(seen.by_gateway == 0, f"{seen.by_gateway} pings went through gw0")
        expect(seen.macs == {("aa:00:00:00:00:01", mac)}, f"MACs on the wire {when} the fail-over: {seen.macs}")
        stage.say_path(ROUTED, seen)
        if when == "before":
            _fail_over(stage)


def _fail_over(stage: Stage) -> None:
    """While pings go to and fro every 20 ms."""
    pings = stage.lab.popen("a", "ping", f"-c{PINGS}", f"-i{PAUSE}", "-W1", ROUTED)
    time.sleep(0.4)
    new = stage.lab.fail_over()
    output, _ = pings.communicate(timeout=30)
    received = re.search(r"(\d+) received", output)
    expect(received is not None, f"the pings said: {output}")
    lost = PINGS - int(received[1]) if received else PINGS
    expect(lost * PAUSE < 1, f"{lost} of {PINGS} pings were lost: {lost * PAUSE:.2f} s")
    stage.product.wait(
        lambda: stage.router("n1", 4)["mac"] == stage.lab.router_macs(0)[0], "the new router's MAC to be believed"
    )
    console.print(f"  {new} took over: {lost} of {PINGS} pings lost, which is {lost * PAUSE * 1e3:.0f} ms")


def tunnel(stage: Stage) -> None:
    """The same with `traffic_mode: hybrid`: by Geneve into the other subnet, straight in the own one"""
    stage.product.restart({"traffic_mode": "hybrid"})
    stage.product.wait_ready()
    stage.lab.run("a", "ping", "-c2", "-W2", ROUTED, check=False)  # the switch asks for the tunnel's next hop
    stage.settle()
    with stage.lab.capture("n1", "eth1", "udp port 6081") as capture:
        seen = stage.ping(ROUTED, naked=False)
    outer = {(frame["IP"].src, frame["IP"].dst) for frame in capture.frames()}
    ends = ("192.168.77.101", "192.168.88.103")
    expect(seen.macs == set(), f"pings to {ROUTED} were on the wire as they are")
    expect(outer == {ends, ends[::-1]}, f"outer addresses: {outer}")
    console.print(f"  a → {ROUTED}: on the wire only Geneve (UDP 6081) between {ends[0]} and {ends[1]}")
    row = next(row for row in stage.product.get("/v1/nodes") if row["name"] == "n1")
    console.print(f"  pods on n1 should have an MTU of {row['pod_mtu']} now")
    expect(row["pod_mtu"] == 1450, f"pod MTU {row['pod_mtu']}")
    direct(stage)
