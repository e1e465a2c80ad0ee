"""What could not be worked out because a rule or a feature failed: a fault of Signalbox itself, whatever the object.

The compiler goes on with everything else. Whoever asks whether all is well has to hear of it, and a switch must not
lose flows only because nobody could say them this time.
"""

from msgspec import Struct

from pipelines.model import Problem


class Fault(Struct, frozen=True, gc=False):
    """`step`: the rule's or feature's name; `kind` and `key` of what it ran for; `trace`: for the log.

    `kept`: what it said before is still in force. Without, nothing is there of it.
    """

    step: str
    kind: str
    key: str
    error: str
    kept: bool
    trace: str = ""

    @property
    def whole(self) -> bool:
        """Whether it concerns every switch, and not one object: fixed flows, and what follows from the settings."""
        return not self.key

    @property
    def problem(self) -> Problem:
        stays = "what was in force before stays" if self.kept else "it has no flows, and switches keep those they hold"
        return Problem(self.kind, self.key, "compile", f"{self.step}: {self.error}; {stays} (a fault of Signalbox)")
