"""Prompts of exact token length as token ids: the same ids in every arm, process and platform."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.trace import Trace
from workloads.prompts.draws import MIN_SYMBOLS, WARMUPS, Indexes
from workloads.prompts.parts import PromptPlan

Ids = npt.NDArray[np.uint32]


def safe_ids(vocab_size: int, special: Collection[int] = ()) -> range:
    """The ids that stand for plain text in a vocabulary of `vocab_size` entries.

    Special tokens stand at either end: byte and control tokens within the first thousand, chat and padding tokens
    within the last three percent. Where the special ids are known, the longest run free of them is taken as well.
    Raises WorkloadError where fewer than 16 ids are left.
    """
    low, high = min(1024, vocab_size // 8), vocab_size - vocab_size // 32
    fences = [low - 1, *sorted(id_ for id_ in set(special) if low <= id_ < high), high]
    runs = [range(fence + 1, following) for fence, following in pairwise(fences)]
    run = max(runs, key=len)
    if len(run) < MIN_SYMBOLS:
        raise WorkloadError(
            f"a vocabulary of {vocab_size} tokens leaves {len(run)} plain ids; prompts need {MIN_SYMBOLS} or more"
        )
    return run


class TokenPrompts:
    """Token-id prompts for a trace, each drawn when it is asked for.

    `ids` is the range to draw from (see `safe_ids`). Prompts share a prefix only as `blocks` (hash ids) or `sessions`
    (a later turn begins with the earlier turn's prompt and a stand-in for its answer) say; otherwise no two begin with
    the same block, nor, while the rows are fewer than half the ids, with the same token. Nothing is kept between
    calls, and the order of calls does not matter. Errors as `PromptPlan`.
    """

    def __init__(
        self, trace: Trace, seed: int, ids: range, *, blocks: Blocks | None = None, sessions: bool = False
    ) -> None:
        if ids.step != 1 or ids.start < 0:
            raise WorkloadError(f"{ids}: token ids are drawn from a range of whole numbers, 0 or more, in steps of 1")
        self._plan = PromptPlan(trace, seed, len(ids), blocks=blocks, sessions=sessions)
        self._first = ids.start

    def ids(self, row: int, after: npt.ArrayLike | None = None) -> Ids:
        """The row's prompt, `prompt_tokens` ids (uint32).

        `after`: the ids it begins with instead of a planned history, such as the earlier turn's prompt and the answer
        that the server really gave. Raises WorkloadError where they leave no room for a token of its own.
        """
        plan, length = self._plan, self._plan.length(row)
        if after is not None:
            head = np.asarray(after, dtype=np.uint32)
            if len(head) >= length:
                raise WorkloadError(
                    f"{plan.trace.name}, row {row}: a prompt of {length} tokens cannot go on after {len(head)} tokens"
                )
            return np.concatenate([head, self._of(plan.own(row, length - len(head)))])
        parts: list[Indexes] = []
        done = 0
        for turn in plan.turns_up_to(row):
            parts.append(plan.own(turn, plan.length(turn) - done))
            if turn != row:
                parts.append(plan.answer(turn))
                done = plan.length(turn) + len(parts[-1])
        return self._of(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def warmup(self, number: int, tokens: int) -> Ids:
        """A warm-up prompt of `tokens` ids: its first token begins no measured prompt.

        `number` counts from 0 to 2⁴⁰ − 1; warm-ups of different numbers share no first block.
        """
        check_warmup(number, tokens)
        return self._of(self._plan.draws.draw("warmup", number, tokens))

    def _of(self, indexes: Indexes) -> Ids:
        return (indexes + self._first).astype(np.uint32)


def check_warmup(number: int, tokens: int) -> None:
    """Raise WorkloadError for a warm-up that cannot be."""
    if not 0 <= number < WARMUPS or tokens < 1:
        raise WorkloadError(
            f"warm-up {number} of {tokens} tokens: count warm-ups from 0, and give each at least 1 token"
        )
