"""Who may write to a switch: OpenFlow roles.

A controller claims MASTER with the generation id that it queried, plus one (modulo 2^64); an older controller
that wakes up later has an older id and is refused (STALE). Whoever loses the role stops writing and says so;
it does not claim again by itself, so two controllers never fight over a switch in a loop. What a switch shall tell
of itself is said together with the claim.
"""

from controller import encode, readback
from controller.connection import Connection, Refused

TRIES = 3  # two controllers that connect in the same moment may take each other's number


class MasterLost(Exception):
    """Another controller is master of the switch."""


def claim_master(connection: Connection) -> int:
    """Returns the generation id in force. Raises MasterLost when somebody is always a step ahead."""
    refusal = ""
    for _ in range(TRIES):
        reply = readback.role(connection.request(encode.role_query(connection.next_xid())).data)
        generation = (reply.generation + 1) % (1 << 64)
        try:
            connection.request(encode.role_master(connection.next_xid(), generation))
        except Refused as refused:
            refusal = str(refused)
        else:
            connection.send(encode.set_async(connection.next_xid()))
            return generation
    raise MasterLost(f"MASTER was refused: {refusal}")
