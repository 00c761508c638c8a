"""How many prompt tokens a step should hold: the engine's budget, or a half, quarter or eighth of it if cheaper."""

from __future__ import annotations

OCTAVES = (1, 2, 3)
EVERY, SETTLED_EVERY = 8, 64  # large admissions from one trial to the next; once each size is known
FEWEST, ENOUGH = 4, 12  # steps of a size before it counts; before it is known
CHEAPER = 0.02
LEAST_WEIGHT = 1 / 16
FULL = 0.75  # a step counts as one of the whole budget from this share on


class StepBudget:
    """Seconds a prompt token by the size of a step, for prompts alone and beside decodes; now and then one is a trial.

    Octave o stands for the budget B/2^o.
    """

    __slots__ = ("_best", "_large", "_seen", "_since")

    def __init__(self) -> None:
        self._large = 0
        self._since = 0
        self._seen: dict[tuple[bool, int], tuple[float, int]] = {}  # exclusive, octave -> mean s/token, steps
        self._best = {False: 0, True: 0}

    def tokens(self, exclusive: bool, budget: int) -> int:
        """The most prompt tokens of a step."""
        return max(1, budget >> self._best[exclusive])

    def trial(self, exclusive: bool, prompt_tokens: float, budget: int) -> int:
        """The same for the first step of an admission of so many tokens: every so often that of another size."""
        if prompt_tokens <= budget / 2:
            return self.tokens(exclusive, budget)
        self._since += 1
        known = all(self._count(exclusive, octave) >= ENOUGH for octave in OCTAVES)
        if self._since < (SETTLED_EVERY if known else EVERY) or not self._count(exclusive, 0):
            return self.tokens(exclusive, budget)
        self._since = 0
        self._large += 1
        return max(1, budget >> OCTAVES[self._large % len(OCTAVES)])

    def _count(self, exclusive: bool, octave: int) -> int:
        return self._seen.get((exclusive, octave), (0.0, 0))[1]

    def see(self, exclusive: bool, prefill_tokens: int, decodes: int, seconds: float, budget: int) -> None:
        """A step held so many prompt tokens and decodes, and took `seconds`."""
        octave = 0
        if prefill_tokens < FULL * (budget - decodes):
            octave = next((one for one in OCTAVES if prefill_tokens == budget >> one), -1)
        if octave < 0:
            return
        mean, count = self._seen.get((exclusive, octave), (0.0, 0))
        count += 1
        mean += (seconds / prefill_tokens - mean) * max(1 / count, LEAST_WEIGHT)
        self._seen[exclusive, octave] = (mean, count)
        whole, steps = self._seen.get((exclusive, 0), (0.0, 0))
        if steps < FEWEST:
            return
        known = [(self._seen[exclusive, one][0], one) for one in OCTAVES if self._count(exclusive, one) >= FEWEST]
        cheapest, best = min(known, default=(whole, 0))
        self._best[exclusive] = best if cheapest < (1 - CHEAPER) * whole else 0
