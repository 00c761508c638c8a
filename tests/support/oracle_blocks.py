"""The KV cache's blocks, slow and plain: how many each request holds, and what a prefix cache finds in them."""

from __future__ import annotations

from typing import ClassVar

from harness.simulate.limits import EngineLimits
from tests.support.oracle_rows import Counts, Request


class OracleBlocks:
    """All blocks of an engine; `contents` are the tokens of each prompt and answer, where there is a prefix cache."""

    known: ClassVar[dict[tuple[int, ...], int]] = {}

    def __init__(self, limits: EngineLimits, contents: list[list[int]] | None, counts: Counts) -> None:
        self.size = limits.block_size
        self.total = limits.kv_blocks - 1  # one is the null block
        self.unheld = self.total
        self.counts = counts
        # With a prefix cache blocks have numbers: those that are free in the order in which they are taken, how many
        # hold each, and a name for all up to its end.
        self.contents = None if contents is None else [self.named(tokens) for tokens in contents]
        self.free = list(range(1, limits.kv_blocks))
        self.users = [0] * limits.kv_blocks
        self.names: dict[int, int] = {}  # in the order in which they were named

    def named(self, tokens: list[int]) -> list[int]:
        """A number for each full block: another wherever it or anything before it is another."""
        names, before = [], -1
        for end in range(self.size, len(tokens) + 1, self.size):
            before = self.known.setdefault((before, *tokens[end - self.size : end]), len(self.known))
            names.append(before)
        return names

    def find(self, request: Request) -> list[int]:
        """The oldest blocks that hold the request's beginning, whole ones and not its last token."""
        found: list[int] = []
        if self.contents is not None:
            for wanted in self.contents[request.row][: (request.context - 1) // self.size]:
                same = [block for block, name in self.names.items() if name == wanted]
                if not same:
                    break
                found.append(same[0])
        return found

    def needed(self, request: Request, found: list[int]) -> int:
        """Blocks that must be unheld for all of the request's context, given what was found of it."""
        return self._blocks_for(request.context) - sum(self.users[block] > 0 for block in found)

    def hold(self, request: Request, found: list[int]) -> None:
        """The request starts with what was found of it."""
        for block in found:
            if not self.users[block]:
                self.free.remove(block)
            self.users[block] += 1
        request.table = list(found)
        request.blocks = len(found)
        request.computed = len(found) * self.size
        self._count_unheld(0)
        self.counts.hits += bool(found)
        self.counts.hit_tokens += request.computed
        self.counts.own_hits += bool(found) and request.seen
        self.counts.whole_hits += bool(found) and request.context - request.computed <= self.size

    def grow(self, request: Request, tokens: int) -> bool:
        """Gives the request the blocks for this many more tokens; False where there are not enough."""
        more = self._blocks_for(request.computed + tokens) - request.blocks
        if more > self.unheld:
            return False
        request.blocks += more
        self._take(request, more, request.computed + tokens)
        self._count_unheld(more)
        return True

    def let_go(self, request: Request) -> None:
        """The request holds nothing any more; what was named of it can still be found."""
        held, request.blocks = request.blocks, 0
        freed = []
        for block in reversed(request.table):
            self.users[block] -= 1
            if not self.users[block]:
                freed.append(block)
        self.free[:0] = [block for block in freed if block not in self.names]
        self.free += [block for block in freed if block in self.names]
        request.table = []
        self._count_unheld(-held)

    def _take(self, request: Request, more: int, computed: int) -> None:
        """New blocks for the request, of which so many tokens are then computed."""
        if self.contents is None:
            return
        for _ in range(more):
            block = self.free.pop(0)
            self.counts.evictions += self.names.pop(block, None) is not None
            self.users[block] = 1
            request.table.append(block)
        for place in range(computed // self.size):
            if request.table[place] not in self.names:
                name = self.contents[request.row][place]
                self.counts.duplicates += name in self.names.values()
                self.names[request.table[place]] = name

    def _count_unheld(self, taken: int) -> None:
        """Without a prefix cache nobody shares: what is taken is counted alone."""
        self.unheld = len(self.free) if self.contents is not None else self.unheld - taken

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.size)
