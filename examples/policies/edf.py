"""Earliest deadline first: mixed batching, and the request whose first token is due soonest starts first.

    bench run --policy v1,examples/policies/edf.py:Edf,per_token=0.001 --slo ttft_s=1 …

Classical (real-time scheduling). A deadline is the run's limit on TTFT; `per_token` (s) gives longer prompts longer.
"""

from typing import Any

from policies.own import MIXED, OwnPolicy, Ranked, StepPlan, View, WaitingRequest


class Edf(OwnPolicy):
    """Mixed batching in the order of deadlines."""

    per_token: float = 0.0
    MAX_OVERTAKES = None  # a late one may be passed by all whose deadlines are nearer

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.order = Ranked(self.due_us)

    def due_us(self, request: WaitingRequest) -> int:
        """When its first token is due, µs."""
        due = request.arrival_s if request.deadline_s is None else request.deadline_s
        return round(1e6 * (due + self.per_token * request.num_prompt_tokens))

    def plan(self, view: View) -> StepPlan:
        """Always mixed."""
        return MIXED
