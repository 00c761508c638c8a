"""What a prompt is made of: blocks that a trace says are shared, earlier turns, and what is its own."""

from __future__ import annotations

import numpy as np

from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.sessions import turns_before
from workloads.core.trace import Trace
from workloads.prompts.draws import Draws, Indexes


class PromptPlan:
    """The symbols of each prompt of a trace, over an alphabet that is token ids or words.

    `blocks` are shared prefixes by hash id; `sessions` lets each later turn begin with the prompt of the turn
    before it and a seeded stand-in for its answer (`output_tokens` long). Raises WorkloadError where the trace has no
    sessions, where a turn is too short to hold the turns before it, and where both are asked for.
    """

    def __init__(
        self, trace: Trace, seed: int, symbols: int, *, blocks: Blocks | None = None, sessions: bool = False
    ) -> None:
        if blocks is not None and sessions:
            raise WorkloadError(f"{trace.name}: hash_ids already say what turns share: ask for one or the other")
        self.trace = trace
        self.blocks = blocks
        count = blocks.check(trace.name, trace.prompt_tokens) if blocks is not None else 0
        self.draws = Draws(trace.digest, seed, symbols, rows=len(trace), blocks=count)
        self._before = turns_before(trace) if sessions else None

    def length(self, row: int) -> int:
        """The row's prompt, tokens; WorkloadError for a row that the trace does not have."""
        if not 0 <= row < len(self.trace):
            raise WorkloadError(f"{self.trace.name}: no row {row}: rows go from 0 to {len(self.trace) - 1}")
        return int(self.trace.prompt_tokens[row])

    def before(self, row: int) -> int | None:
        """The row whose prompt and answer this row's prompt begins with, if any."""
        earlier = int(self._before[row]) if self._before is not None else -1
        return earlier if earlier >= 0 else None

    def turns_up_to(self, row: int) -> list[int]:
        """The rows whose prompts and answers this row's prompt begins with, the first turn first; then the row."""
        turns = [row]
        earlier = self.before(row)
        while earlier is not None:
            turns.append(earlier)
            earlier = self.before(earlier)
        return turns[::-1]

    def own(self, row: int, length: int) -> Indexes:
        """`length` symbols for the row without its earlier turns: its blocks, then what is its own."""
        if self.blocks is None:
            return self.draws.draw("row", row, length)
        size, parts, left = self.blocks.tokens, [], length
        for number in self.blocks.ids[row]:
            parts.append(self.draws.draw("block", int(number), min(size, left)))
            left -= len(parts[-1])
            if not left:
                break
        if left:
            parts.append(self.draws.draw("row", row, left))
        return np.concatenate(parts)

    def answer(self, row: int) -> Indexes:
        """The stand-in for the row's answer, `output_tokens` symbols."""
        return self.draws.draw("answer", row, int(self.trace.output_tokens[row]))
