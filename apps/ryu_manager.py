"""The `ryu-manager` command: Ryu 4.34 as it is, made to start on a current Python and eventlet.

Ryu's own console script of this name imports `ryu.app.wsgi`, which wants a name that eventlet gave up in 0.30.3.
Ours is installed after it, takes its place, and hands over to Ryu's `main` with every option unchanged
(`--wsapi-port`, `--ofp-tcp-listen-port`, `--version`, …).

The order is the point: eventlet patches the standard library before anything creates a lock or a socket. So
nothing but `sys` and `warnings` is imported before `green()`, and whoever starts Ryu by another way calls it first.
"""

import sys
import warnings


def green(*, thread: bool = True) -> None:
    """Patch the standard library for green threads and put back what Ryu misses in eventlet.

    Call it before any other import; a second call does nothing. `thread=False` leaves `threading` as it is, which
    is what Ryu's --enable-debugger asks for.
    """
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
    import eventlet

    eventlet.monkey_patch(thread=thread)
    import eventlet.wsgi

    # Ryu returns this as the empty body of a request that a websocket has answered.
    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = ()


def main() -> None:
    """Run `ryu-manager` with the arguments of this process."""
    green(thread="--enable-debugger" not in sys.argv)
    from ryu.cmd.manager import main as run

    sys.exit(run(prog="ryu-manager"))
