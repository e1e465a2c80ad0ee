"""What a bridge holds before any controller was there: the node itself reaches its network, and nothing else passes.

The uplink is in the bridge and the bridge is in fail mode `secure`, so without flows a node would be cut off, and
where the controller is reached through the uplink it would stay so. Two flows of the lowest priority join the host's
port and the uplink, frame by frame: tagged ones, multicast and neighbour discovery included. Every flow of a
controller comes before them. Their cookie is not the controller's, which therefore leaves them alone.

They are lost with ovs-vswitchd and when a bridge gets its first controller, and they name port numbers: whoever does
one of these things, or gives the uplink another number, writes them again.
"""

from pathlib import Path

COOKIE = 0xB007
PRIORITY = 1
LOCAL = "LOCAL"


def flows(uplink: str) -> tuple[str, ...]:
    """The flows as ovs-ofctl text, for an uplink of this name; raises ValueError for one that is no name of a port."""
    if not uplink or any(sign in uplink for sign in '"\\,\n') or len(uplink) > 15:
        raise ValueError(f"{uplink!r} is no name of a port")
    port = f'"{uplink}"'
    start = f"cookie={COOKIE:#x},table=0,priority={PRIORITY}"
    return tuple(f"{start},in_port={entered},actions=output:{left}" for entered, left in ((port, LOCAL), (LOCAL, port)))


def command(bridge: str, directory: Path | None = None) -> list[str]:
    """The program that writes what `text` says, given to it as standard input, in one atomic bundle.

    `directory`: where the sockets of Open vSwitch are, if not where its tools look for them.
    """
    switch = bridge if directory is None else f"unix:{directory / bridge}.mgmt"
    return ["ovs-ofctl", "-O", "OpenFlow15", "--timeout=10", "--bundle", "add-flows", switch, "-"]


def text(uplink: str) -> str:
    """Flow mods, one a line: earlier bootstrap flows go, so that none names a number that the uplink had before."""
    return "".join(
        f"{line}\n" for line in (f"delete cookie={COOKIE:#x}/-1", *(f"add {flow}" for flow in flows(uplink)))
    )
