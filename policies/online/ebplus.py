"""EB+: mixed or exclusive batching, whichever the crossover inequality favours (arXiv 2606.00516, form 6)."""

from __future__ import annotations

from dataclasses import replace

from policies.core import MIXED, Order, PolicyState, StepCosts, StepPlan, View
from policies.online.controller import OnlineController
from policies.online.exclusive import Exclusive, state_of
from policies.online.forecast import ForecastGate
from policies.online.threshold import crossover
from policies.timed import HearsTime


class EBPlus:
    """Starts mixed; changes its mode when the inequality has favoured the other for `cooldown` updates in a row.

    `delta_s` in s/token favours TTFT (mixed) where positive and throughput (exclusive) where negative;
    `smoothing` is the weight of a step in N_obs, the smoothed number of running requests.
    """

    __slots__ = (
        "_against",
        "_controller",
        "_cooldown",
        "_costs",
        "_crossover",
        "_delta_s",
        "_exclusive",
        "_exclusive_state",
        "_keep",
        "_mixed",
        "_mixed_state",
        "_n_anchor",
        "_n_running",
        "_n_steps",
        "_plain",
        "on_admit",
        "on_finish",
        "on_timed_step",
        "order",
    )

    def __init__(
        self,
        controller: OnlineController,
        costs: StepCosts,
        delta_s: float,
        smoothing: float,
        cooldown: int,
        gate: ForecastGate | None = None,
    ) -> None:
        self.order: Order | None = None
        self._controller = controller
        self._exclusive = Exclusive(controller, gate)
        self.on_admit = self._exclusive.on_admit
        self.on_finish = self._exclusive.on_finish
        if gate is not None:
            self.on_timed_step: HearsTime = gate.on_timed_step
        self._costs = costs
        self._delta_s = delta_s
        self._keep = 1 - smoothing
        self._cooldown = cooldown
        self._mixed = True
        self._against = 0
        # N_obs after any number of steps at one level has a closed form: it is kept as the value before them,
        # the level, and how many they were, so that many steps at once give the same bits as one by one.
        self._n_anchor = 0.0
        self._n_running = 0
        self._n_steps = 0
        self._crossover: tuple[float, float, float] = (0.0, 0.0, 0.0)  # N_obs and both sides, at the last update
        self._mixed_state = PolicyState(mode="MB")
        self._exclusive_state = self._plain = PolicyState(mode="EB")

    @property
    def n_obs(self) -> float:
        """N_obs, exponentially smoothed over the steps."""
        return self._n_running + (self._n_anchor - self._n_running) * self._keep**self._n_steps

    def plan(self, view: View) -> StepPlan:
        """Mixed, or what the phase machine says."""
        if self._controller.updates_due:
            self._reconsider(view)
        return MIXED if self._mixed else self._exclusive.plan(view)

    def _reconsider(self, view: View) -> None:
        """Looks at the inequality again, and changes the mode where it is time."""
        target = self._controller.target(view)
        n_obs = self.n_obs
        if not (target.p_bar and target.mu_l and n_obs):
            return
        left, right = crossover(target.theta, target.mu_l, 1 / target.p_bar, n_obs, self._delta_s, self._costs)
        self._against = self._against + 1 if (left < right) != self._mixed else 0
        if self._against >= self._cooldown:
            self._mixed = not self._mixed
            self._against = 0
            self._exclusive.reset()
        self._crossover = (n_obs, left, right)
        self._mixed_state = self._with_crossover(state_of(target), "MB")

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Counts the tokens produced and smooths the number of running requests."""
        self._controller.estimator.on_steps(steps, decodes, first_tokens)
        if running == self._n_running:
            self._n_steps += steps
        else:
            level = self._n_running
            self._n_anchor = level + (self._n_anchor - level) * self._keep**self._n_steps
            self._n_running = running
            self._n_steps = steps

    def state(self) -> PolicyState:
        """The mode, both sides of the crossover, and what exclusive batching holds or would hold to be true."""
        if self._mixed:
            return self._mixed_state
        plain = self._exclusive.state()
        if plain is not self._plain:
            self._plain = plain
            self._exclusive_state = self._with_crossover(plain, "EB")
        return self._exclusive_state

    def _with_crossover(self, state: PolicyState, mode: str) -> PolicyState:
        n_obs, left, right = self._crossover
        return replace(state, mode=mode, n_obs=n_obs, crossover_left=left, crossover_right=right)
