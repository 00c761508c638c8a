"""How far the decoding requests have come: their number, sums and extremes, kept as they change.

All requests that decode advance together, so one clock of decode steps serves them all. A request is written
down as the clock at which it would have had no token (its birth) and that less its prompt (its shift): the
clock minus these is what it has generated and what it holds in KV. A step then changes only the clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Container

# Number; sum, least and most output tokens; sum, least and most footprint.
Statistics = tuple[int, int, int, int, int, int, int]
NOTHING: Statistics = (0, 0, 0, 0, 0, 0, 0)


class Progress:
    """Requests by their id; what is said of one takes effect at once, `tick` moves all that decode on by a token.

    A decode step may leave some out (async scheduling: all their tokens are on the way; or the token budget is
    spent). These lag: they keep their counts and count as no producers until a step takes them along again.
    Who can have no more than its `max_tokens` is looked at first when somebody is missing.
    """

    __slots__ = ("_births", "_births_sum", "_clock", "_decoding", "_full_at", "_shifts", "_shifts_sum", "lagging")

    def __init__(self) -> None:
        self._clock = 0
        self._decoding: dict[str, tuple[int, int, int]] = {}  # birth, num_prompt_tokens, max_tokens
        self._full_at: dict[int, set[str]] = {}  # clock at which requests have all the tokens that they can have
        self._births = array("q")  # sorted
        self._shifts = array("q")  # sorted
        self._births_sum = self._shifts_sum = 0
        self.lagging: dict[str, tuple[int, int, int]] = {}  # num_prompt_tokens, num_output_tokens, max_tokens

    def __len__(self) -> int:
        """Requests that decode, those that lag left out."""
        return len(self._decoding)

    def enter(self, request_id: str, num_prompt_tokens: int, num_output_tokens: int, max_tokens: int) -> None:
        """A prompt has been computed; the request has this much output and gets a token with each tick."""
        birth = self._clock - num_output_tokens
        shift = birth - num_prompt_tokens
        self._decoding[request_id] = (birth, num_prompt_tokens, max_tokens)
        self._full_at.setdefault(birth + max_tokens, set()).add(request_id)
        births, shifts = self._births, self._shifts
        insort(births, birth)
        insort(shifts, shift)
        self._births_sum += birth
        self._shifts_sum += shift

    def leave(self, request_id: str) -> int | None:
        """The request decodes no more; its output tokens, None where it did not decode."""
        decoding = self._decoding.pop(request_id, None)
        if decoding is None:
            lagged = self.lagging.pop(request_id, None)
            return None if lagged is None else lagged[1]
        birth, num_prompt_tokens, _ = decoding
        shift = birth - num_prompt_tokens
        births, shifts = self._births, self._shifts
        del births[bisect_left(births, birth)]
        del shifts[bisect_left(shifts, shift)]
        self._births_sum -= birth
        self._shifts_sum -= shift
        return self._clock - birth

    def take_along(self, decodes: int, scheduled: Container[str]) -> None:
        """`decodes` of the requests decode in this step, all named in `scheduled`: the others lag."""
        full = self._full_at.pop(self._clock, ())
        lagging, decoding = self.lagging, self._decoding
        if lagging:
            for request_id in [request_id for request_id in lagging if request_id in scheduled]:
                self.enter(request_id, *lagging.pop(request_id))
        if decodes != len(decoding):
            self._leave_behind([full_id for full_id in full if full_id in decoding and full_id not in scheduled])
        if decodes != len(decoding):
            self._leave_behind([request_id for request_id in decoding if request_id not in scheduled])

    def _leave_behind(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            _, num_prompt_tokens, max_tokens = self._decoding[request_id]
            num_output_tokens = self.leave(request_id)
            assert num_output_tokens is not None
            self.lagging[request_id] = (num_prompt_tokens, num_output_tokens, max_tokens)

    def tick(self) -> None:
        """A decode step: each has one token more."""
        self._clock += 1

    def context(self) -> tuple[int, int]:
        """Σ of prompt and output tokens, and the longest of them."""
        if not self._decoding:
            return 0, 0
        return len(self._decoding) * self._clock - self._shifts_sum, self._clock - self._shifts[0]

    def statistics(self) -> Statistics:
        """What `Statistics` says, of those that decode; a footprint is prompt plus output tokens."""
        n = len(self._decoding)
        if not n:
            return NOTHING
        clock, births, shifts = self._clock, self._births, self._shifts
        return (
            n,
            n * clock - self._births_sum,
            clock - births[-1],
            clock - births[0],
            n * clock - self._shifts_sum,
            clock - shifts[-1],
            clock - shifts[0],
        )

    def num_output_tokens(self) -> list[int]:
        """Output tokens of each, descending; those that lag included."""
        clock = self._clock
        decoding = [clock - birth for birth in self._births]
        if not self.lagging:
            return decoding
        lagging = [output for _, output, _ in self.lagging.values()]
        return sorted([*decoding, *lagging], reverse=True)

    def footprints(self) -> list[int]:
        """Prompt plus output tokens of each, descending; those that lag included."""
        clock = self._clock
        decoding = [clock - shift for shift in self._shifts]
        if not self.lagging:
            return decoding
        lagging = [prompt + output for prompt, output, _ in self.lagging.values()]
        return sorted([*decoding, *lagging], reverse=True)


def statistics_of(producing: list[tuple[int, int]]) -> Statistics:
    """The same figures of (prompt, output) tokens of each, where the step held no decode."""
    if not producing:
        return NOTHING
    outputs = [output for _, output in producing]
    footprints = [prompt + output for prompt, output in producing]
    return len(producing), sum(outputs), min(outputs), max(outputs), sum(footprints), min(footprints), max(footprints)
