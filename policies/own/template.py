"""A scheduler policy of one's own, in one file: what it says holds on every engine of `bench`.

    bench policy check ./mine.py:Mine
    bench run --gpu l40s --policy v1,./mine.py:Mine,k=16 --workload sharegpt --repeat 3

It may import the standard library and `policies` alone: the same file rides inside vLLM.
"""

from __future__ import annotations

from policies.own import DECODE, MIXED, UNLIMITED, OwnPolicy, Phase, StepPlan, View


class Mine(OwnPolicy):
    """Gathers k requests, then lets them all in: a prefill then holds several prompts, and decodes stop less often."""

    # An option: `--policy ./mine.py:Mine,k=16`. Its kind is its annotation's: int, float, bool or str.
    k: int = 8
    # No request that waits longer is held back, s.
    patience_s: float = 0.5
    # Columns of the run's step log, and curves on its page: `columns` gives their values.
    COLUMNS = ("oldest_s",)

    oldest_s = 0.0

    def plan(self, view: View) -> StepPlan:
        """What the next step may hold: asked when something has changed, and when the last plan has run out.

        The phase: MIXED (decodes, and prompts beside them), PREFILL (prompts alone), DECODE (nobody enters). Then how
        many may enter in a step, for how many steps the plan holds, the most prompt tokens of a step, and the time
        from which to be asked again.
        """
        first = next(view.waiting_requests(), None)
        self.oldest_s = view.now_s - first.arrival_s if first is not None else 0.0
        if first is None or view.prefilling:
            return MIXED
        free = view.slots - view.decoding
        if not view.decoding or view.waiting >= min(self.k, free) or self.oldest_s >= self.patience_s:
            return StepPlan(Phase.MIXED, self.k) if free else DECODE
        # Nobody enters until k wait, or the first has waited long enough.
        return StepPlan(Phase.DECODE, 0, UNLIMITED, again_at_s=first.arrival_s + self.patience_s)

    def columns(self) -> tuple[float]:
        """The values of COLUMNS as of the last plan."""
        return (self.oldest_s,)

    # More that it may say or hear; each has a default (policies/own/base.py):
    #   self.slots, self.costs     N, and the step costs of the GPU (None where nobody knows them)
    #   order                      the waiting queue's own order: Ranked(lambda request: request.num_prompt_tokens)
    #   MAX_OVERTAKES              how many may start before one that came earlier, None for any number
    #   on_admit(prompt_tokens), on_finish(output_tokens), on_steps(steps, decodes, running, first_tokens)
    #   on_timed_step(steps, prefill_tokens, prefill_work, decodes, context, seconds, preempted): what its steps took
