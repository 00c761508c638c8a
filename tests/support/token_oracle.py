"""The token-step model stepped one token at a time, in plain words: what schedules and step tables are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Requests that hold a slot in a step, and their tokens after it."""

    n: int
    total: int
    least: int
    most: int

    @property
    def gap(self) -> int:
        return self.most - self.least


def steps_of(lengths: Sequence[int], starts: Sequence[int]) -> list[Step]:
    """Every step from 0 to the makespan."""
    found = []
    for t in range(max(s + o for s, o in zip(starts, lengths, strict=True))):
        r = [t - s + 1 for s, o in zip(starts, lengths, strict=True) if s <= t < s + o]
        found.append(Step(len(r), sum(r), min(r, default=0), max(r, default=0)))
    return found


def gap_max(lengths: Sequence[int], starts: Sequence[int]) -> int:
    """The largest gap of any step, from pairs: of two that ever meet, |s_i − s_k|."""
    ordered = sorted(zip(starts, lengths, strict=True))
    worst, active = 0, [ordered[0]]
    for start, length in ordered:
        active = [one for one in active if one[0] + one[1] > start]
        worst = max([worst, *(start - one[0] for one in active)])
        active.append((start, length))
    return worst


def most_at_once(lengths: Sequence[int], starts: Sequence[int]) -> int:
    """The most requests that hold a slot in one step."""
    events = sorted([(s, 1) for s in starts] + [(s + o, -1) for s, o in zip(starts, lengths, strict=True)])
    level = peak = 0
    for _, change in events:
        level += change
        peak = max(peak, level)
    return peak
