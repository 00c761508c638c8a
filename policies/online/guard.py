"""The guard of ISJL: whom a step lets in beside those that run, so that no two ever differ by more than α.

All that run advance together, so two requests that decode side by side keep their distance in tokens for ever:
a bound on it is a rule of admission alone, and holds whatever the lengths turn out to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.core import PartialPrefill, View
from policies.online.shelf import Candidate

# The share of α that shorts take before a leader where nobody says.
PLAN = 0.7


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """What decides ISJL.

    `alpha` is the largest distance, tokens; `kv` measures it in KV footprint (prompt and output), else in output
    tokens. Shorts go before a leader for at most `plan`·α steps. A request that has waited for more than
    `max_wait` decode steps goes before all others (None: never). `lenient` starts a leader that has missed its
    time. `exclusive` stops decoding during prefill.
    """

    alpha: int
    kv: bool = False
    plan: float = PLAN
    max_wait: int | None = None
    lenient: bool = False
    exclusive: bool = False


class Guard:
    """The step to come, as far as it is filled: what holds a slot, and the counts that this spans.

    A request's count is what α bounds, its output tokens or its KV footprint. Where `top` is None nothing runs, and
    whoever comes first passes.
    """

    __slots__ = (
        "_alpha",
        "_exclusive",
        "_kv",
        "_running",
        "_token_budget",
        "bottom",
        "budget",
        "free_slots",
        "top",
    )

    def __init__(self, options: GuardOptions) -> None:
        self._alpha = options.alpha
        self._kv = options.kv
        self._exclusive = options.exclusive
        self._token_budget = 0
        self._running = 0  # requests that hold a slot
        self.free_slots = 0
        self.budget = 0  # tokens that prefills may still take of this step
        self.top: int | None = None  # the largest count of those that run, after the step
        self.bottom = 0  # and the smallest

    def look(self, view: View, partial_prefills: Sequence[PartialPrefill], waiting: int) -> None:
        """Sees what holds a slot before a step; with no slot free, or nobody to take it, the step admits none."""
        decoding = view.decoding
        self._running = decoding + len(partial_prefills)
        self.free_slots = view.slots - self._running
        self.budget = 0
        if self.free_slots <= 0 or not waiting:
            return
        self._token_budget = budget = view.token_budget
        top, bottom = None, 0
        if decoding:
            counts = view.footprints() if self._kv else view.num_output_tokens()
            top, bottom = counts[0], counts[-1]
            if not self._exclusive:
                budget -= decoding
                top, bottom = top + 1, bottom + 1
        for partial in partial_prefills:
            # Where something of the budget is left, its prompt is complete after this step.
            budget -= partial.tokens_left
            count = self.start(partial.num_prompt_tokens, partial.num_output_tokens)
            bottom = count if top is None else min(bottom, count)
            top = count if top is None else max(top, count)
        self.budget, self.top, self.bottom = budget, top, bottom

    def start(self, num_prompt_tokens: int, num_output_tokens: int) -> int:
        """A request's count after the step that completes its prefill, which gives a token."""
        return num_output_tokens + 1 + (num_prompt_tokens if self._kv else 0)

    def passes(self, candidate: Candidate) -> bool:
        """Whether it would be within α of all that run, from its first token on."""
        if self.top is None:
            return True
        least, most = self._delay(candidate)
        start, alpha = candidate.start, self._alpha
        return self.top + most - start <= alpha and start - self.bottom - least <= alpha

    def _delay(self, candidate: Candidate) -> tuple[int, int]:
        """The least and most decode steps that come between this step and the one that completes its prefill.

        The engine gives a prompt what those that decode leave of each step's tokens; they may end, but nobody new
        starts before it is complete.
        """
        left = candidate.prefill_tokens - self.budget
        if left <= 0 or self._exclusive:
            return 0, 0
        return -(-left // self._token_budget), -(-left // max(1, self._token_budget - self._running))

    def delay_beside_all(self, candidate: Candidate) -> int:
        """Decode steps that pass during its prefill where every slot is taken."""
        if self._exclusive:
            return 0
        left_for_prefill = self._token_budget - self._running - self.free_slots
        return -(-candidate.prefill_tokens // max(1, left_for_prefill)) - 1

    def stay(self, candidate: Candidate, length: int) -> int:
        """Decode steps for which it holds a slot; exclusive prefill gives the first token between two of them."""
        return length - 1 if self._exclusive else length + self._delay(candidate)[1]

    def admit(self, candidate: Candidate) -> None:
        """Counts it among those that run."""
        self.free_slots -= 1
        self._running += 1
        if candidate.prefill_tokens <= self.budget:
            top, start = self.top, candidate.start
            self.bottom = start if top is None else min(self.bottom, start)
            self.top = start if top is None else max(top, start)
        # A prompt that does not fit ends the step's admissions.
        self.budget = max(0, self.budget - candidate.prefill_tokens)
