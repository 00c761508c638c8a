"""Two classes: requests with short prompts before all others, first come first served within each.

    bench run --policy v1,examples/policies/priority.py:Priority,short=512 …

vLLM (`--scheduling-policy priority`: the lower number first, then the earlier arrival). There the sender names a
request's number; here its prompt decides, since no trace has any. Nobody who runs gives way to a higher class.
"""

from typing import Any

from policies.own import MIXED, OwnPolicy, Ranked, StepPlan, View, WaitingRequest


class Priority(OwnPolicy):
    """Mixed batching in the order of classes."""

    short: int = 512
    MAX_OVERTAKES = None  # a long one waits for as long as short ones come

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.order = Ranked(self.priority)

    def priority(self, request: WaitingRequest) -> int:
        """Its class, 0 before 1."""
        return int(request.num_prompt_tokens > self.short)

    def plan(self, view: View) -> StepPlan:
        """Always mixed."""
        return MIXED
