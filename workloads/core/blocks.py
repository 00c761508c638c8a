"""Which prompts share a prefix: the blocks of tokens that a production trace names by number (`hash_ids`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from workloads.core.errors import WorkloadError

LARGEST_ID = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Blocks:
    """A trace's `hash_ids`: `ids[row]` names the row's blocks of `tokens` tokens, in order from its start.

    Equal ids are equal text, so prompts share as long a prefix as their ids agree. The last block may be
    cut by the prompt's end; what the ids do not reach is the row's own.
    """

    ids: Sequence[Sequence[int]]
    tokens: int

    def check(self, name: str, prompt_tokens: npt.NDArray[np.int64]) -> int:
        """How many block numbers there are (the highest + 1); WorkloadError where they do not fit the prompts."""
        if self.tokens < 1:
            raise WorkloadError(f"{name}: blocks of {self.tokens} tokens: hash_ids need a block size of 1 or more")
        if len(self.ids) != len(prompt_tokens):
            raise WorkloadError(f"{name}: hash_ids has {len(self.ids)} rows, prompt_tokens has {len(prompt_tokens)}")
        highest = -1
        for row, (ids, prompt) in enumerate(zip(self.ids, prompt_tokens.tolist(), strict=True)):
            why = misfit(ids, prompt, self.tokens)
            if why:
                raise WorkloadError(f"{name}, row {row}: {why}")
            highest = max(highest, *ids) if ids else highest
        return highest + 1

    def take(self, rows: Iterable[int]) -> Blocks:
        """The blocks of the rows named, in the order named."""
        return Blocks(tuple(self.ids[row] for row in rows), self.tokens)

    @property
    def canonical(self) -> bytes:
        """What a digest takes in: block size, ids a row, ids."""
        counts = np.array([self.tokens, *map(len, self.ids)], dtype="<i8")
        flat = np.fromiter(chain.from_iterable(self.ids), dtype="<u8")
        return b"blocks" + counts.tobytes() + flat.tobytes()

    def shared_tokens(self, prompt_tokens: npt.NDArray[np.int64]) -> int:
        """Prompt tokens that stand in a prefix which an earlier row begins with too: what a boundless cache would save.

        Whole blocks only, as engines cache them.
        """
        seen: dict[tuple[int, int], int] = {}
        shared = 0
        for ids, prompt in zip(self.ids, prompt_tokens.tolist(), strict=True):
            # A node of the tree of prefixes: its parent and its own block.
            node, hits = 0, True
            for block in ids[: prompt // self.tokens]:
                key = (node, block)
                hits = hits and key in seen
                shared += self.tokens * hits
                node = seen.setdefault(key, len(seen) + 1)
        return shared


def misfit(ids: Sequence[int], prompt_tokens: int, tokens: int) -> str | None:
    """Why a row's ids do not fit its prompt, in words that say what to look at; None where they do."""
    need = -(-prompt_tokens // tokens)
    if len(ids) > need:
        return (
            f"{len(ids)} hash_ids, but a prompt of {prompt_tokens} tokens has {need} blocks of {tokens}: "
            "check the block size (block=N says another)"
        )
    if ids and (min(ids) < 0 or max(ids) > LARGEST_ID):
        return "a hash_id is not between 0 and 2⁶⁴ − 1"
    return None
