"""The shortest fair schedule of a few small requests, by trying every one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations

# A running request: the steps it has been at it (cut at α + 1) and those it has left.
Running = tuple[tuple[int, int], ...]
Waiting = tuple[int, ...]


def fair_optimum(lengths: Sequence[int], slots: int, alpha: int) -> int:
    """The smallest makespan with a gap of at most α at all times, in steps; for at most some eight requests.

    Starts are tried at every step. A start is allowed while nobody who runs is older than α, since all of them
    advance together; so a step decides only how many of the waiting start in it, and which.
    """
    return _least(slots, alpha)((), tuple(sorted(lengths)))


@lru_cache(maxsize=4)
def _least(slots: int, alpha: int) -> Callable[[Running, Waiting], int]:
    @lru_cache(maxsize=1 << 18)
    def least(running: Running, waiting: Waiting) -> int:
        """Steps until all are done."""
        longest = max((left for _, left in running), default=0)
        if not waiting:
            return longest
        work = sum(left for _, left in running) + sum(waiting)
        bound = max(longest, waiting[-1], -(-work // slots))
        best = longest + sum(waiting)  # one after the other
        for started in _choices(waiting, slots - len(running) if _open(running, alpha) else 0):
            now = running + tuple((0, left) for left in started)
            if not now:
                continue
            rest = list(waiting)
            for length in started:
                rest.remove(length)
            # Nothing can start before the oldest beyond α have ended; else look again at the next step.
            after = _advance(now, 1, alpha)
            skip = 1
            while after and not _open(after, alpha):
                more = max(left for age, left in after if age > alpha)
                skip += more
                after = _advance(after, more, alpha)
            best = min(best, skip + least(after, tuple(rest)))
            if best == bound:
                break
        return best

    return least


def _open(running: Running, alpha: int) -> bool:
    """Whether a start is allowed: nobody who runs is older than α."""
    return all(age <= alpha for age, _ in running)


def _advance(running: Running, steps: int, alpha: int) -> Running:
    """Who runs after so many steps, and since when."""
    return tuple(sorted((min(age + steps, alpha + 1), left - steps) for age, left in running if left > steps))


def _choices(waiting: Waiting, most: int) -> list[Waiting]:
    """Which of the waiting may start together: as many as fit first, equal ones told apart by length alone."""
    choices: dict[Waiting, None] = {}
    for count in range(min(most, len(waiting)), -1, -1):
        choices.update(dict.fromkeys(combinations(waiting, count)))
    return list(choices)
