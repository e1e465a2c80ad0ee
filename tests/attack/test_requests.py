"""Many questions at once."""

from collections.abc import Iterator

import eventlet
from eventlet.semaphore import Semaphore

from apps.rest import PIECE, _pieces


def test_of_many_requests_at_once_only_one_works_and_a_slow_reader_delays_none() -> None:
    turn, working, most = Semaphore(), 0, 0

    def pause() -> None:
        nonlocal working, most
        working += 1
        most = max(most, working)
        eventlet.sleep(0)
        working -= 1

    def rows() -> Iterator[str]:
        for _ in range(50):
            yield "x" * (PIECE // 20)

    def read(wait: float) -> int:
        size = 0
        for piece in _pieces(rows(), pause, turn):
            size += len(piece)
            eventlet.sleep(wait)
        return size

    slow = eventlet.spawn(read, 60)
    with eventlet.Timeout(5):
        sizes = [one.wait() for one in [eventlet.spawn(read, 0) for _ in range(30)]]
    slow.kill()
    assert most == 1
    assert min(sizes) > 2 * PIECE
