"""The turns of conversations: which row of a trace waits for the answer to which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.core.errors import WorkloadError
from workloads.core.trace import Ints, Trace


@dataclass(frozen=True, slots=True)
class Turns:
    """Rows by the turn that they wait for: `heads` (ascending) wait for none, `after` names the turn after a row's."""

    heads: list[int]
    after: dict[int, int]


def turns_of(trace: Trace) -> Turns:
    """The turns of a trace, each after the one with the next lower turn in its session, rows in order among equals.

    Raises WorkloadError where the trace has no sessions.
    """
    order, session, _ = _in_order(trace)
    later = session[1:] == session[:-1]
    after = dict(zip(order[:-1][later].tolist(), order[1:][later].tolist(), strict=True))
    heads = order[np.concatenate([[True], ~later])]
    return Turns(np.sort(heads).tolist(), after)


def turns_before(trace: Trace) -> Ints:
    """For each row the row of the turn whose prompt and answer its own prompt begins with, −1 for first turns.

    Raises WorkloadError where the trace has no sessions, and where a prompt is too short to hold what came before.
    """
    order, session, turn = _in_order(trace)
    follows = np.flatnonzero((session[1:] == session[:-1]) & (turn[1:] > turn[:-1])) + 1
    before = np.full(len(trace), -1, dtype=np.int64)
    before[order[follows]] = order[follows - 1]
    rows = np.flatnonzero(before >= 0)
    earlier = before[rows]
    room = trace.prompt_tokens[rows] - trace.prompt_tokens[earlier] - trace.output_tokens[earlier]
    if len(room) and int(room.min()) < 1:
        row = int(rows[int(np.argmin(room))])
        ahead = int(before[row])
        # Where the data set's own answers stand in the prompt, forced ones may be longer.
        rendered = "template" in trace.source
        remedy = (
            "the data set's own answers stand there: leave out forced=…"
            if rendered
            else "leave out --sessions, or take wildchat or lmsys with history=true"
        )
        raise WorkloadError(
            f"{trace.name}, row {row}: a prompt of {trace.prompt_tokens[row]} tokens cannot hold the turn before it "
            f"(row {ahead}: {trace.prompt_tokens[ahead]} in, {trace.output_tokens[ahead]} out): {remedy}"
        )
    return before


def _in_order(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """The rows by session and turn, and these two columns in that order."""
    if trace.session is None or trace.turn is None:
        notes = "; ".join(trace.source.get("notes", []))
        raise WorkloadError(
            f"{trace.name}: prompts that continue earlier turns need sessions, and this trace has none"
            f"{f' ({notes})' if notes else ''}: leave out --sessions, or take a workload of conversations"
        )
    order = np.lexsort((trace.turn, trace.session))
    return order, trace.session[order], trace.turn[order]
