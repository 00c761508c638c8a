"""What prompts and answers are made of, as far as a prefix cache can tell: which blocks of tokens are the same.

The same content as the prompts that are really sent (workloads.prompts.parts): a session's turn goes on from the
turn before it and its answer, `hash_ids` name blocks that prompts share, and everything else is like nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.sessions import turns_before
from workloads.core.trace import Trace


class Content:
    """Keys for the blocks of `block_size` tokens of each row's prompt and answer, one after the other.

    Two blocks have the same key where everything up to their ends is the same, which is when vLLM's chained hashes
    are. With `sessions` later turns begin with the earlier ones. Raises WorkloadError where a turn is too short for
    that, and where the trace has hash_ids as well.
    """

    def __init__(self, trace: Trace, block_size: int, sessions: bool) -> None:
        if trace.blocks is not None and sessions:
            raise WorkloadError(f"{trace.name}: hash_ids already say what turns share: ask for one or the other")
        self._trace = trace
        self._size = block_size
        self._before = turns_before(trace) if sessions else None
        self._shared = trace.blocks
        counts = (trace.prompt_tokens + trace.output_tokens) // block_size
        # Each row's keys are a range of their own, but those of a conversation are one range that grows.
        base = np.concatenate([[0], np.cumsum(counts)])
        self._keys = int(base[-1])
        self._base: list[int] = base[:-1].tolist()
        if self._before is not None and trace.turn is not None:
            self._keys = self._chain(np.argsort(trace.turn, kind="stable").tolist(), counts.tolist())
        self._nodes = [] if self._shared is None else self._name_prefixes(self._shared, trace.prompt_tokens.tolist())

    def keys(self, row: int, start: int, stop: int) -> Iterable[int]:
        """The keys of the row's blocks from `start` up to `stop`."""
        base = self._base[row]
        named = 0 if self._shared is None else self._named_blocks(row)
        if start >= named:
            return range(base + start, base + stop)
        keys = [self._key(row, place) for place in range(start, min(stop, named))]
        keys.extend(range(base + named, base + stop))
        return keys

    def recurring_tokens(self) -> int:
        """Prompt tokens of whole blocks that something earlier began with: what a boundless cache would find."""
        trace, size = self._trace, self._size
        if self._before is not None:
            rows = np.flatnonzero(self._before >= 0)
            earlier = self._before[rows]
            # The last token of an answer is never computed, and of a prompt one token always is.
            known = (trace.prompt_tokens[earlier] + trace.output_tokens[earlier] - 1) // size
            return int(size * np.minimum(known, (trace.prompt_tokens[rows] - 1) // size).sum())
        if self._shared is None:
            return 0
        cached: dict[int, int] = {}  # of a prefix that ends in one of the trace's blocks, ours that are in the cache
        recurring = 0
        for row, nodes in enumerate(self._nodes):
            named, recurs, whole = self._named_blocks(row), 0, True
            for place, node in enumerate(nodes):
                last = min(named, self._first(place + 1))
                if whole:
                    recurs = min(last, max(recurs, cached.get(node, 0)))
                    whole = recurs == last
                cached[node] = max(cached.get(node, 0), last)
            recurring += min(recurs, (int(trace.prompt_tokens[row]) - 1) // size)
        return recurring * size

    def _chain(self, order: list[int], counts: list[int]) -> int:
        """Gives each conversation a range of keys, as long as its longest turn needs; how many keys there are."""
        assert self._before is not None
        before = self._before.tolist()
        first: dict[int, int] = {}
        longest: dict[int, int] = {}
        for row in order:
            first[row] = first[before[row]] if before[row] >= 0 else row
            longest[first[row]] = max(longest.get(first[row], 0), counts[row])
        base, starts = 0, {}
        for row, blocks in longest.items():
            starts[row] = base
            base += blocks
        self._base = [starts[first[row]] for row in range(len(counts))]
        return base

    def _name_prefixes(self, blocks: Blocks, prompts: list[int]) -> list[list[int]]:
        """For each row and block of its hash_ids the first key of the prefix that ends in it."""
        known: dict[tuple[int, int], int] = {}
        named = []
        for ids, prompt in zip(blocks.ids, prompts, strict=True):
            row, parent = [], -1
            for place, block in enumerate(ids[: -(-prompt // blocks.tokens)]):
                key = known.get((parent, block))
                if key is None:
                    key = known[(parent, block)] = self._keys
                    # At least one, so that each prefix has a number.
                    self._keys += max(1, self._first(place + 1) - self._first(place))
                row.append(key)
                parent = key
            named.append(row)
        return named

    def _first(self, place: int) -> int:
        """The first of our blocks that ends within or after this one of the trace's."""
        assert self._shared is not None
        return place * self._shared.tokens // self._size

    def _named_blocks(self, row: int) -> int:
        """How many of the row's blocks hash_ids cover wholly."""
        assert self._shared is not None
        covered = min(len(self._nodes[row]) * self._shared.tokens, int(self._trace.prompt_tokens[row]))
        return covered // self._size

    def _key(self, row: int, block: int) -> int:
        assert self._shared is not None
        place = ((block + 1) * self._size - 1) // self._shared.tokens
        return self._nodes[row][place] + block - self._first(place)
