"""Multi-level queues for admission: a request joins the level of its prompt's length, and rises by waiting.

    bench run --policy v1,examples/policies/mlfq.py:Mlfq,quantum=256,promote=2 …

After FastServe's skip-join MLFQ (arXiv 2305.05920): its first level holds prompts of up to `quantum` tokens, each next
one twice as long ones, and `promote` seconds of waiting are worth a level. FastServe also preempts what decodes; a
policy here admits and never preempts, so that half is not in it.
"""

from typing import Any

from policies.own import MIXED, OwnPolicy, Ranked, StepPlan, View, WaitingRequest


class Mlfq(OwnPolicy):
    """Mixed batching in the order of levels."""

    quantum: int = 256
    promote: float = 2.0
    MAX_OVERTAKES = None

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.order = Ranked(self.place)

    def place(self, request: WaitingRequest) -> int:
        """When it would have come, were it of the first level, µs."""
        level = max(0, (request.num_prompt_tokens - 1) // self.quantum).bit_length()
        return round(1e6 * (request.arrival_s + level * self.promote))

    def plan(self, view: View) -> StepPlan:
        """Always mixed."""
        return MIXED
