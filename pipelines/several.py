"""Of many alike: how a sentence names them."""

from collections.abc import Iterable

SHOWN = 3


def several(texts: Iterable[str], shown: int = SHOWN, between: str = ", ") -> str:
    """The first of them, and how many more there are: "n1, n2, n3 and 7 more"; "" for none."""
    listed = list(texts)
    more = f" and {len(listed) - shown} more" if len(listed) > shown else ""
    return between.join(listed[:shown]) + more
