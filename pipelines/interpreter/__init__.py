"""What our flows do to a packet, computed from the same values that are sent to switches.

`Switch(flows, groups, ports).receive(packet)` says what leaves by which port, what goes to the controller, and by
which flows. It follows the userspace datapath of Open vSwitch, against which it is tested frame by frame. It serves
the simulation of whole networks in the tests and `signalbox trace`.

`packet` has the values, `classifier` finds the flow, `connections` tracks, `switch` executes, `story` tells.
"""

from pipelines.interpreter.packet import ICMP_CODE, ICMP_ID, Packet
from pipelines.interpreter.story import tell
from pipelines.interpreter.switch import Outcome, Sent, Step, Switch, ToController

__all__ = ["ICMP_CODE", "ICMP_ID", "Outcome", "Packet", "Sent", "Step", "Switch", "ToController", "tell"]
