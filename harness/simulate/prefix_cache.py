"""A prefix cache by vLLM's rules: full blocks by the hash of all up to their ends, counted users, oldest free first.

A block is found by its hash as soon as the step that computes its last token is scheduled. A freed block keeps its
content until it is taken again: those without a hash are taken first, then those freed longest ago, of one request the
last block first. Two blocks with the same hash stay two, and the older one is found.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from workloads.prompts.content import Content


class PrefixCache:
    """The blocks of a KV cache (numbered from 1; 0 is vLLM's null block), who holds them and what is in them.

    `requests` are rows of the content's trace. `cached_tokens` has, for each request, the tokens found when it was
    first admitted; `evictions` counts the blocks whose content made room for another.
    """

    def __init__(self, content: Content, blocks: int, block_size: int) -> None:
        self.cached_tokens: dict[int, int] = {}
        self.evictions = 0
        self._content = content
        self._size = block_size
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks + 1))
        self._users = [0] * (blocks + 1)
        self._key = [-1] * (blocks + 1)
        self._blocks: dict[int, dict[int, None]] = {}  # by key, oldest first
        self._held: dict[int, list[int]] = {}
        self._named: dict[int, int] = {}  # blocks of a request that have their key

    @property
    def free(self) -> int:
        """Blocks that nobody holds, whatever is in them."""
        return len(self._free)

    def find(self, request: int, tokens: int) -> list[int]:
        """The blocks that hold the beginning of a request of `tokens` tokens, of which one is always computed."""
        cached_blocks = []
        for key in self._content.keys(request, 0, (tokens - 1) // self._size):
            blocks = self._blocks.get(key)
            if blocks is None:
                break
            cached_blocks.append(next(iter(blocks)))
        return cached_blocks

    def held_by_others(self, cached_blocks: list[int]) -> int:
        """How many of the blocks take nothing from the free ones."""
        users = self._users
        return sum(users[block] > 0 for block in cached_blocks)

    def admit(self, request: int, cached_blocks: list[int], num_blocks: int, num_computed_tokens: int) -> int:
        """Gives a request the blocks found for it and new ones up to `num_blocks`.

        `num_computed_tokens` are then in them. Returns the free blocks left, as all that follow do.
        """
        for block in cached_blocks:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1
        self._held[request] = list(cached_blocks)
        self._named[request] = len(cached_blocks)
        self.cached_tokens.setdefault(request, len(cached_blocks) * self._size)
        self.extend(request, num_blocks - len(cached_blocks))
        return self.compute(request, num_computed_tokens)

    def extend(self, request: int, num_blocks: int) -> int:
        """Gives a request so many more blocks."""
        held = self._held[request]
        for _ in range(num_blocks):
            block, _ = self._free.popitem(last=False)
            if self._key[block] >= 0:
                self._forget(block)
            self._users[block] = 1
            held.append(block)
        return len(self._free)

    def compute(self, request: int, num_computed_tokens: int) -> int:
        """So many tokens from a request's first on are in its blocks: full ones can be found from now on."""
        named, full = self._named[request], num_computed_tokens // self._size
        if full > named:
            held = self._held[request]
            for block, key in zip(islice(held, named, full), self._content.keys(request, named, full), strict=True):
                self._key[block] = key
                self._blocks.setdefault(key, {})[block] = None
            self._named[request] = full
        return len(self._free)

    def release(self, request: int, num_computed_tokens: int) -> int:
        """Takes a request's blocks away; so many tokens were in them."""
        self.compute(request, num_computed_tokens)
        del self._named[request]
        nameless = []
        for block in reversed(self._held.pop(request)):
            self._users[block] -= 1
            if self._users[block]:
                continue
            self._free[block] = None
            if self._key[block] < 0:
                nameless.append(block)
        for block in reversed(nameless):
            self._free.move_to_end(block, last=False)
        return len(self._free)

    def _forget(self, block: int) -> None:
        key = self._key[block]
        blocks = self._blocks[key]
        del blocks[block]
        if not blocks:
            del self._blocks[key]
        self._key[block] = -1
        self.evictions += 1
