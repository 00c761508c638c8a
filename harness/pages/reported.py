"""What was published of the same GPU, model and workload, to hold our numbers against: never ranked with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.pages.boards import Arm, Board
from harness.pages.facets import NOT_TOLD, source_of
from harness.pages.numbers import load_words

# A publication tells one of them; a change in one is a change in all, where the requests are the same.
RATES = ("output_throughput", "total_throughput", "request_throughput")


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """A policy's change in throughput against the same baseline, as somebody published it.

    `board` is the id of the table of reported figures; `load` is given where it is not ours.
    """

    ratio: float
    board: str
    source: str
    load: str | None


def reported_changes(boards: Sequence[Board]) -> dict[str, dict[str, ReportedChange]]:
    """By a board's id, by policy. Boards in an open loop have none: what is offered decides their throughput."""
    reported: dict[tuple[str, ...], list[Board]] = {}
    for board in boards:
        if board.kind == "reported":
            reported.setdefault(_subject(board), []).append(board)
    changes: dict[str, dict[str, ReportedChange]] = {}
    for board in boards:
        if board.kind == "reported" or not board.spec.arrival.startswith("closed"):
            continue
        for other in reported.get(_subject(board), ()):
            if other.baseline == board.baseline:
                # Of several publications the first counts.
                changes[board.id] = _changes(other, board) | changes.get(board.id, {})
    return changes


def _subject(board: Board) -> tuple[str, ...]:
    """What a publication must be about to be held against a board."""
    return (board.spec.gpu, board.spec.model, board.spec.workload)


def _changes(reported: Board, ours: Board) -> dict[str, ReportedChange]:
    """The reported changes by policy."""
    load = reported.first.run.known_spec["arrival"]
    same = load == ours.spec.arrival
    words = None if same else "another load" if load == NOT_TOLD else load_words(load)
    source, _ = source_of(reported.first.run)
    changes = {}
    for arm in reported.arms:
        ratio = _rate_ratio(arm)
        if arm.policy != reported.baseline and ratio is not None:
            changes[arm.policy] = ReportedChange(ratio, reported.id, source, words)
    return changes


def _rate_ratio(arm: Arm) -> float | None:
    """The ratio of the first of RATES that the arm has a change in."""
    ratios = (arm.changes[name].ratio for name in RATES if name in arm.changes)
    return next((ratio for ratio in ratios if ratio is not None), None)
