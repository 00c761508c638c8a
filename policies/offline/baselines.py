"""Offline schedules of the token-step model: every request waits at time 0 and its length is known.

A request of length o (tokens, at least 1) holds one of B slots from its integer start s for o steps, one token
a step, without preemption. Two requests that are ever active together differ in progress by |s_i − s_k|, all
the time; a schedule is fair for α where that is at most α. Planners give the starts in the order of the lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace

from policies.core import PolicyError

Planner = Callable[[Sequence[int], int], list[int]]


def check(lengths: Sequence[int], slots: int, alpha: int = 0) -> None:
    """PolicyError where there is nothing to plan, a length or the slots are below 1, or α is negative."""
    if not lengths:
        raise PolicyError("no requests: nothing to plan")
    if slots < 1:
        raise PolicyError(f"slots B = {slots}: at least 1 is needed")
    if min(lengths) < 1:
        row = next(row for row, length in enumerate(lengths) if length < 1)
        raise PolicyError(f"request {row}: its length is {lengths[row]}; it must be at least 1 token")
    if not alpha >= 0:
        raise PolicyError(f"alpha={alpha} must be a number of tokens of at least 0")


def makespan(lengths: Sequence[int], starts: Sequence[int]) -> int:
    """T, the step after the last."""
    return max(start + length for start, length in zip(starts, lengths, strict=True))


def longest_first(lengths: Sequence[int]) -> list[int]:
    """The rows by length, descending; equal ones stay in their order."""
    return sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)


def refill(lengths: Sequence[int], order: Sequence[int], free: list[int], starts: list[int]) -> None:
    """REFILL: each row of `order` to the slot that frees first; writes its start.

    `free` holds when each slot is free. Which of two slots that free together is taken changes no start.
    """
    heapify(free)
    for row in order:
        start = starts[row] = free[0]
        heapreplace(free, start + lengths[row])


def _refilled(lengths: Sequence[int], slots: int, order: Sequence[int]) -> list[int]:
    starts = [0] * len(lengths)
    refill(lengths, order, [0] * min(slots, len(lengths)), starts)
    return starts


def fcfs(lengths: Sequence[int], slots: int) -> list[int]:
    """FCFS: REFILL in the order given."""
    check(lengths, slots)
    return _refilled(lengths, slots, range(len(lengths)))


def sjf(lengths: Sequence[int], slots: int) -> list[int]:
    """SJF: REFILL, shortest first, stable."""
    check(lengths, slots)
    return _refilled(lengths, slots, sorted(range(len(lengths)), key=lengths.__getitem__))


def lpt(lengths: Sequence[int], slots: int) -> list[int]:
    """LPT: REFILL, longest first, stable: what remains of fairness where α is at least the longest request."""
    check(lengths, slots)
    return _refilled(lengths, slots, longest_first(lengths))


def ljf(lengths: Sequence[int], slots: int) -> list[int]:
    """LJF: batches of B, longest first; the next starts when the longest of this one is done. Its gap is 0."""
    check(lengths, slots)
    starts = [0] * len(lengths)
    order = longest_first(lengths)
    start = 0
    for first in range(0, len(order), slots):
        batch = order[first : first + slots]
        for row in batch:
            starts[row] = start
        start += lengths[batch[0]]
    return starts


def fair_lower_bound(lengths: Sequence[int], slots: int, alpha: int) -> int:
    """No schedule that is fair for α ends before this step.

    The longest request; all tokens over B; and of requests longer than 2α, which run together or not at
    all, the longest of every B.
    """
    long = sorted((length for length in lengths if length > 2 * alpha), reverse=True)
    longest = max(lengths)
    return max(longest, -(-sum(lengths) // slots), sum(long[::slots]))
