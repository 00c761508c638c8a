"""A user's policy as an engine asks it: answers are checked, mistakes told with the policy, the step and the line."""

from __future__ import annotations

import dataclasses
import math
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar, cast

from policies.core import Order, Phase, PolicyFault, PolicyState, StepPlan, TimedView, View
from policies.own.file import PolicyFile
from policies.own.queue import CheckedOrder
from policies.own.seen import Seen
from policies.own.watch import Overrun, Watch
from policies.timed import HearsTime, hearer_of

Answer = TypeVar("Answer")


class Checked:
    """The policy of a file; `columns` are the names of its own columns, `step` counts what has run so far."""

    def __init__(self, file: PolicyFile, policy: Any, watch: Watch, columns: Sequence[str] = ()) -> None:
        self.file = file
        self.policy = policy
        self.columns = tuple(columns)
        self.step = 0
        self.order: Order | None = None
        self._watch = watch
        self._seen: Seen | None = None
        self._state: PolicyState | None = None
        self._told = PolicyState()
        order = getattr(policy, "order", None)
        if order is not None:
            self.order = CheckedOrder(order, self)
        if hearer_of(policy) is not None:
            # Engines tell of time where there is one to tell.
            self.on_timed_step: HearsTime = self._on_timed_step

    def plan(self, view: View) -> StepPlan:
        """What the next step may hold, seen to be a plan."""
        self._watch.here()
        seen = self.seen(view)
        seen.look()
        plan = self.ask("plan", self.policy.plan, seen)
        if plan.__class__ is not StepPlan or not _is_plan(plan):
            self.fail(f"returned {_shown(plan)} in plan: it must be a StepPlan with counts that are not negative")
        return plan

    def seen(self, view: View) -> Seen:
        """An engine's view as the policy sees it, its counts as of the last `plan`."""
        if self._seen is None:
            # Every engine's view knows the time.
            self._seen = Seen(cast(TimedView, view))
        return self._seen

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Passed on."""
        self.ask("on_steps", self.policy.on_steps, steps, decodes, running, first_tokens)
        self.step += steps

    def _on_timed_step(self, *told: Any) -> None:
        self.ask("on_timed_step", self.policy.on_timed_step, *told)

    def on_admit(self, prompt_tokens: int, /) -> None:
        """Passed on."""
        self.ask("on_admit", self.policy.on_admit, prompt_tokens)

    def on_finish(self, output_tokens: int, /) -> None:
        """Passed on."""
        self.ask("on_finish", self.policy.on_finish, output_tokens)

    def state(self) -> PolicyState | None:
        """What the policy held to be true, with its own columns; the same object until that changes."""
        state = self.ask("state", self.policy.state)
        if state is not None and not isinstance(state, PolicyState):
            self.fail(f"returned {_shown(state)} in state: it must be a PolicyState or None")
        own = self._own() if self.columns else None
        if state is None and own is None:
            return None
        if self._state is not None and state == self._told and own == self._state.own:
            return self._state
        self._told = state or PolicyState()
        self._state = dataclasses.replace(self._told, own=own)
        return self._state

    def _own(self) -> tuple[float, ...]:
        values = self.ask("columns", self.policy.columns)
        if len(values) != len(self.columns) or not all(
            isinstance(value, int | float) and math.isfinite(value) for value in values
        ):
            self.fail(f"returned {_shown(values)} in columns: it must be {len(self.columns)} finite numbers")
        return tuple(map(float, values))

    def ask(self, question: str, method: Callable[..., Answer], *args: Any) -> Answer:
        """The answer to any question; PolicyFault, with the step and the line, where the policy fails."""
        watch = self._watch
        if watch.fault is not None:
            self.fail(watch.fault)
        watch.count += 1
        watch.question = question
        try:
            return method(*args)
        except (Exception, SystemExit) as error:
            watch.question = ""
            if isinstance(error, PolicyFault) and not isinstance(error, Overrun):
                raise
            raise PolicyFault(self._said(error, f"at step {self.step} in {question}")) from error
        finally:
            watch.question = ""

    def fail(self, what: str) -> NoReturn:
        """PolicyFault: what the policy did, at which step."""
        raise PolicyFault(f"policy {self.file.name} {what} (step {self.step})")

    def _said(self, error: BaseException, where: str) -> str:
        if isinstance(error, Overrun):
            return said(self.file, error, where, self._watch.fault or "has not come back")
        return said(self.file, error, where)


def said(file: PolicyFile, error: BaseException, where: str, what: str = "") -> str:
    """One line on a policy's mistake: the policy, what it raised, when, and in which line of its file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file.path]
    line = f", line {lines[-1]}" if lines else ""
    text = " ".join(str(error).split())[:200]
    what = what or f"raised {type(error).__name__}{f' ({text})' if text else ''}"
    return f"policy {file.name} {what} {where}{line} of {os.path.basename(file.path)}"


def _is_plan(plan: StepPlan) -> bool:
    again = plan.again_at_s
    return (
        plan.phase.__class__ is Phase
        and type(plan.admit) is int
        and plan.admit >= 0
        and type(plan.steps) is int
        and plan.steps >= 1
        and type(plan.tokens) is int
        and plan.tokens >= 1
        and (again is None or (isinstance(again, int | float) and math.isfinite(again) and again < 9e9))
    )


def _shown(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 160 else f"{text[:159]}…"
