"""How many prompt tokens a step should hold: the engine's budget, or a half, quarter or eighth of it if cheaper."""

from __future__ import annotations

from collections.abc import Callable

OCTAVES = (1, 2, 3)
EVERY, SETTLED_EVERY = 6, 64  # large admissions from one trial to the next; once each size is known
FEWEST, ENOUGH = 3, 12  # steps of a size before it counts; before it is known
CHEAPER = 0.02
FULL = 0.75  # a step counts as one of the whole budget from this share on


class StepBudget:
    """The sizes of steps that have been tried, for prompts alone and beside decodes, and the cheapest of them.

    Octave o stands for the budget B/2^o. Now and then a large admission begins with a step of another size.
    """

    __slots__ = ("_best", "_large", "_seen", "_since")

    def __init__(self) -> None:
        self._large = 0
        self._since = 0
        self._seen = {False: [0, 0, 0, 0], True: [0, 0, 0, 0]}  # exclusive -> steps of each octave
        self._best = {False: 0, True: 0}

    def tokens(self, exclusive: bool, budget: int) -> int:
        """The most prompt tokens of a step."""
        return max(1, budget >> self._best[exclusive])

    def trial(self, exclusive: bool, prompt_tokens: float, budget: int) -> int:
        """The same for the first step of an admission of so many tokens: every so often that of another size."""
        if prompt_tokens <= budget / 2:
            return self.tokens(exclusive, budget)
        self._since += 1
        seen = self._seen[exclusive]
        known = min(seen[octave] for octave in OCTAVES) >= ENOUGH
        if self._since < (SETTLED_EVERY if known else EVERY) or not seen[0]:
            return self.tokens(exclusive, budget)
        self._since = 0
        self._large += 1
        return max(1, budget >> OCTAVES[self._large % len(OCTAVES)])

    def see(self, exclusive: bool, prefill_tokens: int, decodes: int, budget: int) -> None:
        """A step held so many prompt tokens and decodes."""
        octave = 0
        if prefill_tokens < FULL * (budget - decodes):
            octave = next((one for one in OCTAVES if prefill_tokens == budget >> one), -1)
        if octave >= 0:
            self._seen[exclusive][octave] += 1

    def choose(self, exclusive: bool, budget: int, token_s: Callable[[int], float]) -> None:
        """Takes the cheapest of the sizes that were seen; `token_s` gives seconds a prompt token in steps of a size."""
        seen = self._seen[exclusive]
        known = [octave for octave in OCTAVES if seen[octave] >= FEWEST]
        if not known or seen[0] < FEWEST:
            return
        cheapest, best = min((token_s(budget >> octave), octave) for octave in known)
        self._best[exclusive] = best if cheapest < (1 - CHEAPER) * token_s(budget) else 0
