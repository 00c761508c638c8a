"""A policy as vLLM's scheduler asks it: when it is asked again, and how long it may hold all back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from policies.core import DECODE, MIXED, UNLIMITED, Phase, PolicyFault, StepPlan
from policies.plugin.asked import AskedPolicy

VIEW: Any = SimpleNamespace(waiting=3)


class Planned:
    """Answers with the plans given, the last one over and over."""

    order = None

    def __init__(self, *plans: StepPlan) -> None:
        self.plans = list(plans)
        self.asked = 0

    def plan(self, view: Any) -> StepPlan:
        self.asked += 1
        return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]

    def on_steps(self, *_: int) -> None:
        pass

    def state(self) -> None:
        return None


def asked_with(*plans: StepPlan) -> tuple[AskedPolicy, Planned]:
    policy: Any = Planned(*plans)
    return AskedPolicy("mine", policy), policy


def test_it_is_asked_again_when_its_time_has_come() -> None:
    asked, policy = asked_with(StepPlan(Phase.MIXED, 1, UNLIMITED, again_at_s=0.5), MIXED)
    for now_ns, times in ((0, 1), (499_999_999, 1), (500_000_000, 2), (900_000_000, 2)):
        asked.plan(VIEW, now_ns)
        asked.tell_of_step([], 1, 1, 0)
        assert policy.asked == times, now_ns


def test_it_may_hold_all_back_until_then_and_no_longer_than_a_minute() -> None:
    plans = [StepPlan(Phase.DECODE, 0, UNLIMITED, again_at_s=at) for at in (0.5, 61.0)]
    asked, _ = asked_with(*plans)
    held = asked.plan(VIEW, 0)
    assert asked.hold(held, 3, False, 0) == 0.5
    assert asked.hold(held, 3, False, 200_000_000) == 0.3
    held = asked.plan(VIEW, 500_000_000)
    assert asked.hold(held, 3, False, 500_000_000) == 60.5
    with pytest.raises(PolicyFault, match="holds 3 requests back at step 0 for more than 60 s while nothing runs"):
        asked.hold(held, 3, False, 60_500_000_000)


def test_a_step_starts_the_minute_anew() -> None:
    asked, _ = asked_with(StepPlan(Phase.DECODE, 0, UNLIMITED, again_at_s=200.0))
    held = asked.plan(VIEW, 0)
    assert asked.hold(held, 3, False, 0) == 200.0
    asked.tell_of_step([], 1, 1, 0)
    assert asked.hold(held, 3, False, 100_000_000_000) == 100.0


@pytest.mark.parametrize(("plan", "held_back"), [(DECODE, False), (StepPlan(Phase.MIXED, 0), False), (MIXED, True)])
def test_who_names_no_time_must_let_somebody_in(plan: StepPlan, held_back: bool) -> None:
    asked, _ = asked_with(plan)
    with pytest.raises(PolicyFault, match="while nothing can decode: the engine would spin"):
        asked.hold(asked.plan(VIEW, 0), 3, held_back, 0)


def test_an_empty_step_that_is_not_its_doing_is_passed_over() -> None:
    asked, _ = asked_with(MIXED)
    assert asked.hold(asked.plan(VIEW, 0), 3, False, 0) == 0.0
