"""What was published of the same GPU, model and workload, to hold our numbers against: never ranked with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.pages.boards import Board
from harness.pages.facets import NOT_TOLD, source_of
from harness.pages.numbers import load_words

# A publication tells one of them; a change in one is a change in all, where the requests are the same.
RATES = ("output_throughput", "total_throughput", "request_throughput")


@dataclass(frozen=True, slots=True)
class Published:
    """A policy's change in throughput against the same baseline, as somebody published it.

    `load` is told where it is not ours.
    """

    ratio: float
    board: str
    source: str
    load: str | None


def published(boards: Sequence[Board]) -> dict[str, dict[str, Published]]:
    """By a board's id, by policy. Boards in an open loop have none: what is offered decides their throughput."""
    reported: dict[tuple[str, ...], list[Board]] = {}
    for board in boards:
        if board.kind == "reported":
            reported.setdefault(_about(board), []).append(board)
    found: dict[str, dict[str, Published]] = {}
    for board in boards:
        if board.kind == "reported" or not board.first.run.spec.arrival.startswith("closed"):
            continue
        for other in reported.get(_about(board), ()):
            if other.baseline == board.baseline:
                told = found.setdefault(board.id, {})
                told |= {policy: one for policy, one in _changes(other, board).items() if policy not in told}
    return found


def _about(board: Board) -> tuple[str, ...]:
    spec = board.first.run.spec
    return (spec.gpu, spec.model, spec.workload)


def _changes(reported: Board, ours: Board) -> dict[str, Published]:
    load = reported.first.run.told["arrival"]
    same = load == ours.first.run.spec.arrival
    words = None if same else "another load" if load == NOT_TOLD else load_words(load)
    found = {}
    for arm in reported.arms:
        ratio = next((one.ratio for name in RATES if (one := arm.changes.get(name)) and one.ratio is not None), None)
        if arm.policy != reported.baseline and ratio is not None:
            found[arm.policy] = Published(ratio, reported.id, source_of(reported.first.run)[0], words)
    return found
