"""The requests that decode, by one clock of decode steps.

All of them advance together: a request finishes at a clock known when it starts to decode, and needs its next KV
block at every sixteenth tick. That makes a step cost what changes in it, not what runs in it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TypeVar

from workloads.core.trace import Ints

Clock = TypeVar("Clock", int, Ints)  # one or many


class DecodeBatch:
    """Who decodes, in order of admission, and the sums and extremes of their tokens.

    A request's birth is the clock at which it would have had no token yet, its shift that birth less its prompt:
    the clock minus the one counts its output tokens, minus the other its footprint, prompt and output tokens.
    """

    def __init__(self, num_prompt_tokens: list[int], max_tokens: list[int], block_size: int) -> None:
        self.clock = 0  # steps with decodes so far
        # Sorted, an entry a request.
        self.births: list[int] = []
        self.shifts: list[int] = []
        self.births_sum = self.shifts_sum = 0
        self.ends_at: dict[int, list[int]] = {}  # clock -> requests that then have all their tokens
        # Requests that need a block when the clock has this residue.
        self.needs_at: list[dict[int, None]] = [{} for _ in range(block_size)]
        self._birth = [0] * len(num_prompt_tokens)
        self._num_prompt_tokens = num_prompt_tokens
        self._max_tokens = max_tokens
        self._block_size = block_size

    def enter(self, entered: list[int], preempted_output_tokens: dict[int, int]) -> None:
        """Requests that have just got a token decode from the next step on.

        `preempted_output_tokens` has those that were preempted, with the tokens that they had before this one.
        """
        clock, block_size = self.clock, self._block_size
        births, shifts, needs_at, ends_at = self.births, self.shifts, self.needs_at, self.ends_at
        num_prompt_tokens, max_tokens, birth_of = self._num_prompt_tokens, self._max_tokens, self._birth
        births_sum = shifts_sum = 0
        for request in entered:
            birth = clock - 1
            if request in preempted_output_tokens:
                birth -= preempted_output_tokens[request]
            shift = birth - num_prompt_tokens[request]
            birth_of[request] = birth
            if births and birth < births[-1]:
                insort(births, birth)
            else:
                births.append(birth)
            insort(shifts, shift)
            births_sum += birth
            shifts_sum += shift
            needs_at[(shift + 2) % block_size][request] = None
            end = birth + max_tokens[request]
            if end in ends_at:
                ends_at[end].append(request)
            else:
                ends_at[end] = [request]
        self.births_sum += births_sum
        self.shifts_sum += shifts_sum

    def leave(self, stopped: list[int]) -> int:
        """Takes requests out; returns the blocks that their computed tokens fill."""
        clock, block_size = self.clock, self._block_size
        births, shifts, needs_at = self.births, self.shifts, self.needs_at
        num_prompt_tokens, birth_of = self._num_prompt_tokens, self._birth
        births_sum = shifts_sum = blocks = 0
        for request in stopped:
            birth = birth_of[request]
            shift = birth - num_prompt_tokens[request]
            del births[bisect_left(births, birth)]
            del shifts[bisect_left(shifts, shift)]
            births_sum += birth
            shifts_sum += shift
            del needs_at[(shift + 2) % block_size][request]
            blocks += -((shift + 1 - clock) // block_size)
        self.births_sum -= births_sum
        self.shifts_sum -= shifts_sum
        return blocks

    def num_computed_tokens(self, request: int) -> int:
        """The tokens in its blocks: its prompt and all its tokens but the newest, which no step has computed yet."""
        return self.clock - 1 - self._birth[request] + self._num_prompt_tokens[request]

    def interrupt(self, request: int) -> int:
        """Puts off the end of a request that is preempted; returns the output tokens that it has."""
        birth = self._birth[request]
        end = birth + self._max_tokens[request]
        ending = self.ends_at[end]
        ending.remove(request)
        if not ending:
            del self.ends_at[end]
        return self.clock - birth

    def context(self) -> tuple[int, int]:
        """The sum and the longest of their footprints."""
        return len(self.shifts) * self.clock - self.shifts_sum, self.clock - self.shifts[0]

    def produced(self, clock: Clock) -> tuple[int | Clock, ...]:
        """The number of requests; at a clock the sum, least and most of their output tokens; the same of footprints."""
        births, shifts = self.births, self.shifts
        n = len(births)
        return (
            n,
            n * clock - self.births_sum,
            clock - births[-1],
            clock - births[0],
            n * clock - self.shifts_sum,
            clock - shifts[-1],
            clock - shifts[0],
        )

    def produced_by(self, requests: list[int]) -> tuple[int, ...]:
        """The same of some of the requests at the present clock, zeros of none."""
        tokens = [self.clock - self._birth[request] for request in requests]
        footprints = [self._num_prompt_tokens[request] + n for request, n in zip(requests, tokens, strict=True)]
        return (
            len(requests),
            sum(tokens),
            min(tokens, default=0),
            max(tokens, default=0),
            sum(footprints),
            min(footprints, default=0),
            max(footprints, default=0),
        )
