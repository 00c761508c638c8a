"""Counter-based draws: any prompt, block or answer can be drawn alone, in any order, in any process."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from workloads.core.errors import WorkloadError
from workloads.core.seeds import TAGS

Indexes = npt.NDArray[np.int64]

# Never renumber: a kind is part of what a seed means. Each opens with symbols of a range of its own
# (in sixteenths of the alphabet), so that no row begins as a block or a warm-up does.
KINDS = {"row": (0, 0, 8), "block": (1, 8, 14), "answer": (2, 0, 0), "warmup": (3, 14, 16)}
WARMUPS = 1 << 40
MIN_SYMBOLS = 16


class Draws:
    """Sequences over an alphabet of `symbols` symbols, a fixed one for each (digest, seed, kind, number).

    `rows` and `blocks` say how many numbers the kinds `row` and `block` have. Sequences of one kind
    differ within their first `depth(kind)` symbols whatever chance says, and no two kinds begin alike: the first
    symbols count the numbers, the rest is Philox output, whose raw stream numpy keeps for ever. Raises
    WorkloadError for a negative seed or fewer than 16 symbols.
    """

    def __init__(self, digest: str, seed: int, symbols: int, *, rows: int, blocks: int = 0) -> None:
        if seed < 0:
            raise WorkloadError(f"seed {seed} is negative: give 0 or more")
        if symbols < MIN_SYMBOLS:
            raise WorkloadError(f"prompts need {MIN_SYMBOLS} or more different tokens to choose from, not {symbols}")
        entropy = [seed, TAGS["prompts"], int(digest, 16)]
        self._key = np.random.SeedSequence(entropy).generate_state(2, np.uint64)
        self._shift = int(self._key[0])
        self._symbols = symbols
        self._depth = {"answer": 0}
        for kind, numbers in (("row", rows), ("block", blocks), ("warmup", WARMUPS)):
            depth, reach = 1, self._width(kind)
            while reach < numbers:
                depth, reach = depth + 1, reach * symbols
            self._depth[kind] = depth

    def depth(self, kind: str) -> int:
        """Symbols after which two sequences of a kind differ for certain."""
        return self._depth[kind]

    def _width(self, kind: str) -> int:
        _, low, high = KINDS[kind]
        return self._symbols * high // 16 - self._symbols * low // 16

    def draw(self, kind: str, number: int, length: int) -> Indexes:
        """The first `length` symbols (0 to symbols − 1) of one sequence; a shorter draw begins a longer one."""
        tag = KINDS[kind][0]
        # A counter of 256 bits: Philox counts in the lowest word, so sequences never overlap.
        counter = np.array([0, number, tag, 0], dtype=np.uint64)
        words = np.random.Philox(key=self._key, counter=counter).random_raw((length + 1) // 2)
        # Little-endian halves on every platform. Multiply and shift is off an even draw by less than 2⁻¹⁴.
        halves = words.astype("<u8", copy=False).view("<u4")[:length].astype(np.uint64)
        indexes = ((halves * np.uint64(self._symbols)) >> np.uint64(32)).astype(np.int64)
        for place, symbol in enumerate(self._opening(kind, number)[:length]):
            indexes[place] = symbol
        return indexes

    def _opening(self, kind: str, number: int) -> list[int]:
        depth = self._depth[kind]
        if depth == 0:
            return []
        width = self._width(kind)
        rest, digit = divmod(number, width)
        # Rotation by the key: runs with other seeds on one server begin elsewhere.
        opening = [self._symbols * KINDS[kind][1] // 16 + (digit + self._shift) % width]
        for _ in range(depth - 1):
            rest, digit = divmod(rest, self._symbols)
            opening.append((digit + self._shift) % self._symbols)
        return opening
