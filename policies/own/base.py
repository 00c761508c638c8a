"""What a policy of one's own starts from: everything but `plan` has a default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from policies.core import Order, PolicyState, StepCosts, StepPlan, TimedView


class OwnPolicy:
    """A scheduler policy in a user's file; `plan` is all that it must say.

    Options are what the class annotates with a default (`k: int = 8`), what its own `__init__` takes by name, or
    OPTIONS, a tuple of `Option`. The base's `__init__` keeps them, `slots` and `costs` as attributes. A class that has
    a method `on_timed_step` hears what its own steps took (policies/timed.py).
    """

    OPTIONS: ClassVar[tuple[Any, ...] | None] = None
    # Names of the values that `columns` gives: columns of the step log and curves on the run's page.
    COLUMNS: ClassVar[tuple[str, ...]] = ()
    # Requests that came later and may start before one that waits: None where it may wait without end.
    MAX_OVERTAKES: ClassVar[int | None] = 0

    # The waiting queue's own order (`Ranked(key)`); None: first come, first served.
    order: Order | None = None
    slots: int
    costs: StepCosts | None

    def __init__(self, *, slots: int, costs: StepCosts | None = None, **options: Any) -> None:
        self.slots = slots
        self.costs = costs
        for name, value in options.items():
            setattr(self, name, value)

    def plan(self, view: TimedView) -> StepPlan:
        """What the next step may hold."""
        raise NotImplementedError("a policy says in `plan` what the next step may hold")

    def columns(self) -> Sequence[float]:
        """The values of COLUMNS as of the last `plan`, numbers."""
        return ()

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """`steps` steps ran, each with so many decodes and requests holding a slot; so many prompts were completed."""

    def on_admit(self, prompt_tokens: int, /) -> None:
        """A request got a slot for the first time."""

    def on_finish(self, output_tokens: int, /) -> None:
        """A request completed with this many output tokens."""

    def state(self) -> PolicyState | None:
        """More for the step log than COLUMNS: the fields of PolicyState (`mode`, `k`)."""
        return None
