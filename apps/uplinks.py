"""By which sessions frames can be sent out of nodes' uplinks: what asking for MACs and announcing addresses share.

A switch can be used while its session is READY. A session may end, or become that of another node, at any time.
"""

from controller import encode
from controller.session import Session, State
from pipelines.actions import Output
from pipelines.model import Kind, Node, Port, port_key
from pipelines.unit import Member
from pipelines.view import Facts


def uplink_port(facts: Facts, node: str) -> Port | None:
    """The port that a Node names as its uplink, as its switch describes it; None while either is not known."""
    value: Node | None = facts.peek(Kind.NODE).get(node)
    if value is None or value.uplink is None:
        return None
    port: Port | None = facts.peek(Kind.PORT).get(port_key(node, value.uplink))
    return port


class Uplinks:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._sessions: dict[str, Session] = {}  # of the nodes that can send
        self._nodes: dict[Session, str] = {}  # the same, the other way round

    def changed(self, session: Session) -> tuple[str | None, Member | None]:
        """It has entered another state. The node that cannot send any more, and the member that now can."""
        left = self._nodes.pop(session, None)
        if left is not None and self._sessions.get(left) is session:
            del self._sessions[left]
        else:
            left = None
        member = session.fleet.members.get(session.dpid)
        if session.state is not State.READY or member is None:
            return left, None
        self._sessions[member.node], self._nodes[session] = session, member.node
        return left, member

    def port(self, node: str) -> Port | None:
        return uplink_port(self._facts, node)

    def session(self, node: str) -> Session | None:
        return self._sessions.get(node)

    def node(self, session: Session) -> str | None:
        return self._nodes.get(session)

    def send(self, node: str, frame: bytes) -> bool:
        """Whether it was handed to the switch: only its master sends."""
        session, port = self._sessions.get(node), self.port(node)
        if session is None or not session.writer.master or port is None:
            return False
        connection = session.connection
        connection.post(encode.packet_out(connection.next_xid(), frame, (Output(port.number),)))
        return True
