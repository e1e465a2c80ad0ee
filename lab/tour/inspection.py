"""What can be asked of the controller."""

from lab.tour.stage import Stage, console, expect


def rest(stage: Stage) -> None:
    """Everything can be asked over REST"""
    services = stage.product.get("/v1/services")
    expect(any(row["name"] == "default/web" for row in services), "default/web is not among /v1/services")
    flows = stage.product.get("/v1/flows?node=n1&table=endpoint_dnat")
    expect(bool(flows), "/v1/flows shows no flow in endpoint_dnat")
    last = flows[-1]
    console.print(f"  GET /v1/flows?node=n1&table=endpoint_dnat: {len(flows)} flows, one of which is there for")
    console.print(f"  {last['feature']} {last['object']}:")
    console.print(f"    {last['flow']}", style="dim")
    stall = _metric(stage.product.text("/metrics"), "signalbox_hub_longest_stall_seconds")
    sent = sum(row["flow_mods_sent"] for row in stage.product.get("/v1/switches"))
    console.print(f"  {sent} flow mods sent in all; the longest stall of the controller was {stall * 1e3:.0f} ms")
    expect(stage.product.get("/v1/problems") == [], "there are problems: see /v1/problems")


def _metric(text: str, name: str) -> float:
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))
