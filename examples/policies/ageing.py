"""Shortest prompt first with ageing: who waits gains, so that no long prompt waits for ever.

    bench run --policy v1,examples/policies/ageing.py:Ageing,rate=1000 …

Classical (operating systems). A second of waiting counts for `rate` prompt tokens; all age alike, so the order between
two never changes and each is ranked once, when it comes.
"""

from typing import Any

from policies.own import MIXED, OwnPolicy, Ranked, StepPlan, View, WaitingRequest


class Ageing(OwnPolicy):
    """Mixed batching, short prompts first, waiting counted."""

    rate: float = 1000.0
    MAX_OVERTAKES = None

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.order = Ranked(self.aged)

    def aged(self, request: WaitingRequest) -> int:
        """Its prompt, and when it came, in thousandths of a token."""
        return round(1000 * (request.num_prompt_tokens + self.rate * request.arrival_s))

    def plan(self, view: View) -> StepPlan:
        """Always mixed."""
        return MIXED
