"""ISJL: insert short jobs with limit, offline, in its recommended form, in the paper's and as the best of many.

Source: arXiv 2608.02244. A batch has a leader (a request longer than α) on each slot, the longest first, and
runs short ones before the leaders so that every start lies within α of every other that it meets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import neg

from policies.core import PolicyError
from policies.offline.baselines import check, fair_lower_bound, ljf, longest_first, makespan, refill
from policies.offline.insertion import Batch, Shorts, into_most_room, into_tightest


@dataclass(frozen=True, slots=True)
class BatchForm:
    """How batches are filled.

    `passes` are the β of each insertion pass: a leader l_j may start up to min(α, l_1 − l_j) + β after its
    batch. `tightest` takes the slot with the least room that fits rather than the one with most. `hold` keeps
    leaders from starting more than α before the last start of their batch. `packed` is the paper's way with
    slots that have no leader: their shorts end by 2α (else they start by α), and no slot is filled again before
    the whole batch is done.
    """

    passes: tuple[int, ...]
    tightest: bool = False
    hold: bool = True
    packed: bool = False


def isjl(lengths: Sequence[int], slots: int, alpha: int, beta: int = 0) -> list[int]:
    """ISJL: starts with a gap of at most α.

    β = 0 never lengthens a batch of leaders. β in [0, α] lets a second insertion pass lengthen it by up to β.
    """
    check(lengths, slots, alpha)
    if not 0 <= beta <= alpha:
        raise PolicyError(f"beta={beta} must be 0 to alpha={alpha}")
    return _plan(lengths, slots, alpha, BatchForm((0, beta) if beta else (0,)))


def isjl_paper(lengths: Sequence[int], slots: int, alpha: int, hold: bool = False) -> list[int]:
    """ISJL as the paper has it, as far as that can be told; without `hold` its gap may exceed α."""
    check(lengths, slots, alpha)
    return _plan(lengths, slots, alpha, BatchForm((alpha,), hold=hold, packed=True))


def isjl_best(lengths: Sequence[int], slots: int, alpha: int) -> list[int]:
    """The first of LJF and of every form with β a quarter of α or a multiple that has the smallest makespan."""
    check(lengths, slots, alpha)
    best = ljf(lengths, slots)
    steps, least = makespan(lengths, best), fair_lower_bound(lengths, slots, alpha)
    if steps == least:
        return best
    order = longest_first(lengths)
    sizes = [lengths[row] for row in order]
    shortest = None
    for form in _forms(alpha):
        starts = _starts(sizes, slots, alpha, form, below=steps)
        took = steps if starts is None else makespan(sizes, starts)
        if took < steps:
            shortest, steps = starts, took
            if steps == least:
                break
    return best if shortest is None else _in_order(order, shortest)


def _forms(alpha: int) -> list[BatchForm]:
    betas = dict.fromkeys(quarter * alpha // 4 for quarter in range(5))
    return [
        BatchForm(passes, tightest)
        for beta in betas
        for tightest in (False, True)
        # With β = 0 one pass and two are the same.
        for passes in (((0, beta), (beta,)) if beta else ((0,),))
    ]


def _plan(lengths: Sequence[int], slots: int, alpha: int, form: BatchForm) -> list[int]:
    order = longest_first(lengths)
    starts = _starts([lengths[row] for row in order], slots, alpha, form)
    assert starts is not None
    return _in_order(order, starts)


def _in_order(order: Sequence[int], starts: Sequence[int]) -> list[int]:
    """The starts by row of the lengths as they were given, from those in the order of planning."""
    by_row = [0] * len(order)
    for row, start in zip(order, starts, strict=True):
        by_row[row] = start
    return by_row


def _starts(sizes: list[int], slots: int, alpha: int, form: BatchForm, below: int | None = None) -> list[int] | None:
    """The starts of requests in descending order; None once it is clear that the makespan is not `below`."""
    long = bisect_left(sizes, -alpha, key=neg)
    slots = min(slots, len(sizes))
    starts = [0] * len(sizes)
    shorts = Shorts(sizes, long)
    begin, to_come = 0, sum(sizes[:long:slots])
    free = [0] * slots
    for first in range(0, long, slots):
        # What is still to come takes at least the longest leader of each batch.
        if below is not None and begin + to_come >= below:
            return None
        to_come -= sizes[first]
        batch = _open(sizes, range(first, min(first + slots, long)), slots, alpha, begin, form)
        for number, beta in enumerate(form.passes):
            if number:
                _widen(batch, beta - form.passes[number - 1])
            (into_tightest if form.tightest else into_most_room)(shorts, batch, starts)
        free = _close(sizes, batch, alpha, begin, form, starts)
        begin = max(free)
    if form.packed:
        free = [begin] * slots
    rest = shorts.left()
    if below is not None and sum(free) + sum(sizes[row] for row in rest) > (below - 1) * slots:
        return None
    refill(sizes, rest, free, starts)
    return starts


def _open(sizes: list[int], leaders: range, slots: int, alpha: int, begin: int, form: BatchForm) -> Batch:
    """A batch of these leaders from step `begin` on, before any short is in it."""
    longest, beta = sizes[leaders[0]], form.passes[0]
    room = [min(alpha, longest - sizes[row]) + beta for row in leaders]
    room += [2 * alpha] * (slots - len(leaders))
    return Batch(leaders, room, [begin + steps for steps in room], 0 if form.packed else alpha, begin)


def _widen(batch: Batch, beta: int) -> None:
    for slot in range(len(batch.leaders)):
        batch.room[slot] += beta
        batch.origin[slot] += beta


def _close(sizes: list[int], batch: Batch, alpha: int, begin: int, form: BatchForm, starts: list[int]) -> list[int]:
    """Starts the leaders; when each slot is free for what comes after the last leaders."""
    ends = [origin - left for origin, left in zip(batch.origin, batch.room, strict=True)]
    leaders = len(batch.leaders)
    earliest = begin
    if form.hold:
        latest = max(batch.latest, *ends[:leaders])
        earliest = max(begin, latest - alpha)
    for slot, row in enumerate(batch.leaders):
        starts[row] = max(ends[slot], earliest)
        ends[slot] = starts[row] + sizes[row]
    led = max(ends[:leaders])
    return [max(end, led) for end in ends]
