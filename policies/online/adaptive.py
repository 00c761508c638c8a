"""adaptive: mixed or exclusive batching and its k, from what its own steps took; nothing is calibrated beforehand."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

from policies.core import Order, Phase, PolicyState, StepPlan, View
from policies.online.choice import (
    Content,
    DecodeTimes,
    Traffic,
    exclusive_s,
    mixed_s,
    mixed_token_s,
    saturated,
    unsaturated,
)
from policies.online.forecast import ForecastGate
from policies.online.step_budget import StepBudget
from policies.online.step_costs import LearnedCosts
from policies.online.turns import Turns

FIRST_LOOK, EVERY = 8, 32  # steps before the first look at the costs, and from look to look while young; then twice
FEWEST_SAMPLES = 12  # of each kind of step before the mode may change
FEW_SAMPLES, PLAIN = 2, 0.2  # the same where a prompt token is cheaper by such a share
FEWEST_ENDS = 30  # completions before k is chosen
REQUESTS = 300  # that the mean prompt and output look back on
KEEP = 0.99  # of a smoothed mean, a step
RATE_KEEP = 0.97  # of the arrival rate, a look
BETTER, FAR_BETTER, LOOKS, YOUNG = 0.02, 0.1, 3, 500
MIXED_BONUS = 0.01
PROBE_STEPS = 3
FIRST_PROBE, PROBES = 4, ((0.05, 24), (0.1, 48), (inf, 96))


class _Mean:
    """The mean of the last REQUESTS counts."""

    __slots__ = ("_last", "_sum")

    def __init__(self) -> None:
        self._last: deque[int] = deque()
        self._sum = 0

    def add(self, count: int) -> None:
        self._last.append(count)
        self._sum += count
        if len(self._last) > REQUESTS:
            self._sum -= self._last.popleft()

    @property
    def value(self) -> float:
        return self._sum / len(self._last) if self._last else 0.0


@dataclass(slots=True)
class _Verdict:
    """What the last look gave: k and the cost of a request, s, with either kind of step."""

    k: dict[bool, int]
    cost: dict[bool, float]

    def gap(self, exclusive: bool) -> float:
        """The share by which the other kind of step is better than this one; below 0 where it is worse."""
        own, other = self.cost[exclusive], self.cost[not exclusive]
        if own == inf:
            return 0.0 if other == inf else 1.0
        return 1 - other / own if other < inf and own > 0 else -1.0


class Adaptive:
    """Chooses between mixed and exclusive admission, and how many to admit at once, by learned step costs.

    `ttft_s` bounds how long a request waits for others to be admitted with while there is room for it.
    """

    def __init__(self, slots: int, ttft_s: float) -> None:
        self.order: Order | None = None
        self._slots = slots
        self._ttft_s = ttft_s
        self._gate = ForecastGate()
        self._turns = Turns(self._gate, 1)
        self._mixed = LearnedCosts((0, 1, 2, 3))
        self._prefill = LearnedCosts((0, 1))
        self._decode = LearnedCosts((2, 3))
        self._prompts, self._outputs = _Mean(), _Mean()
        self._completions = 0
        self._steps = self._looked_at = 0
        self._crowded = 0.0  # smoothed share of steps in which slots or KV kept someone out
        self._decoding = self._context = self._work = 0.0  # smoothed
        self._time = 0.0  # seconds of all steps told
        self._step_s = 0.0  # of the last decode step
        self._filled = False  # a step with prompts has run since the last that was for decodes' cost alone
        self._waits_since: float | None = None
        self._arrived = self._arrival_time = 0.0  # of the rate, both forgetting
        self._admitted = self._waiting = 0
        self._rate_at = 0.0
        self._verdict: _Verdict | None = None
        self._streak = 0
        self._leans = False  # the mode is that of the first few samples
        self._budget = StepBudget()
        self._token_budget = 1 << 62
        self.probes = 0
        self._probe_every = FIRST_PROBE
        self._since_probe = 0
        self._state = PolicyState(mode="MB")

    @property
    def crowded(self) -> bool:
        """Slots or KV keep someone out in more than half of the steps."""
        return self._crowded > 0.5

    # What it is told.

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Counts the steps."""
        self._steps += steps

    def on_admit(self, prompt_tokens: int, /) -> None:
        """A request got a slot."""
        self._prompts.add(prompt_tokens)
        self._admitted += 1
        self._gate.on_admit(prompt_tokens)

    def on_finish(self, output_tokens: int, /) -> None:
        """A request completed."""
        self._outputs.add(output_tokens)
        self._completions += 1
        self._gate.on_finish(output_tokens)

    def on_timed_step(
        self,
        steps: int,
        prefill_tokens: int,
        prefill_work: float,
        decodes: int,
        context: float,
        seconds: float,
        preempted: int,
        /,
    ) -> None:
        """Learns what such a step costs, and smooths what holds since the last plan."""
        # Not in `on_steps`, which an engine that leaps calls in other portions: the last bit would differ.
        keep = KEEP**steps
        self._crowded = self._crowded * keep + (1 - keep) * self._turns.kept_out
        if decodes:
            self._decoding = self._decoding * keep + (1 - keep) * decodes if self._decoding else float(decodes)
        self._time += steps * seconds
        if preempted:
            self._gate.on_preempted(preempted)
        content: Content = (prefill_tokens, prefill_work, decodes, context)
        if not prefill_tokens:
            costs = self._decode
            self._step_s = seconds
        else:
            self._filled = True
            self._budget.see(not decodes, prefill_tokens, decodes, self._token_budget)
            costs = self._mixed if decodes else self._prefill
            work = prefill_work / prefill_tokens
            self._work += (work - self._work) / 32 if self._work else work
        if decodes:
            held = context / decodes
            self._context += (held - self._context) * (1 - keep) if self._context else held
        costs.add(content, steps, seconds, self._steps)

    # What it decides.

    def plan(self, view: View) -> StepPlan:
        """The next step."""
        turns = self._turns
        every = max(FIRST_LOOK, min(EVERY, self._looked_at)) if self._steps < YOUNG else 2 * EVERY
        if self._steps - self._looked_at >= every:
            self._look(view)
        if self._lacks_decodes(view):
            return StepPlan(Phase.DECODE, 0)
        self._token_budget = view.token_budget
        begins = not turns.filling
        due = turns.due(view)
        if not view.waiting:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = self._time
        elif not due and not turns.kept_out and self._time - self._waits_since >= self._ttft_s / 2:
            due = True
        if due and begins:
            self._waits_since = None
            turns.probing = PROBE_STEPS if self._probes() else 0
            asked = self._prompts.value * min(view.waiting, view.slots - view.decoding)
            turns.tokens = self._budget.trial(turns.exclusive_now, asked, view.token_budget)
        else:
            turns.tokens = self._budget.tokens(turns.exclusive_now, view.token_budget)
        plan = turns.plan(view, due)
        if plan.phase is Phase.DECODE and view.waiting and not turns.kept_out and self._step_s > 0:
            # Nobody may come whose arrival would have it asked again.
            return StepPlan(Phase.DECODE, 0, max(1, int(self._ttft_s / 8 / self._step_s)))
        return plan

    def _lacks_decodes(self, view: View) -> bool:
        """Whether a decode step is due for its cost alone: long prompts may leave none by itself."""
        if self._decode.samples >= FEWEST_SAMPLES or not view.decoding or not self._filled:
            return False
        self._filled = False
        return True

    def _probes(self) -> bool:
        """Whether the fill that begins takes the other kind of step."""
        exclusive = self._turns.exclusive
        own, other = (self._prefill, self._mixed) if exclusive else (self._mixed, self._prefill)
        if min(own.samples, other.samples) < FEWEST_SAMPLES and not self._leans:
            probes = other.samples < own.samples
        else:
            self._since_probe += 1
            probes = self._since_probe >= self._probe_every
        if probes:
            self.probes += 1
            self._since_probe = 0
            gap = abs(self._verdict.gap(exclusive)) if self._verdict else 0.0
            most = next(most for limit, most in PROBES if gap < limit)
            if self._verdict:
                self._probe_every = min(most, self._probe_every * 2)
        return probes

    def _look(self, view: View) -> None:
        """Fits the costs again; chooses k and, where it is time, the other mode."""
        now = self._looked_at = self._steps
        self._see_rate(view)
        for costs in (self._mixed, self._prefill, self._decode):
            costs.refit(now)
        turns = self._turns
        if self._completions >= FEWEST_ENDS and self._decode.samples:
            self._verdict = self._weigh(view)
            self._choose(self._verdict)
        elif not self._leans:
            self._lean(view)
        verdict = self._verdict
        self._state = PolicyState(
            k=turns.k,
            n=turns.reached,
            mode="EB" if turns.exclusive else "MB",
            mu_l=self._prompts.value,
            cost_mixed_s=None if verdict is None or verdict.cost[False] == inf else verdict.cost[False],
            cost_exclusive_s=None if verdict is None or verdict.cost[True] == inf else verdict.cost[True],
            z=self._gate.z,
            probes=self.probes,
            budget=self._budget.tokens(turns.exclusive, view.token_budget),
        )

    def _lean(self, view: View) -> None:
        """Takes the mode in which the first full steps were plainly cheaper, before anybody has ended."""
        few = min(self._mixed.samples, self._prefill.samples, self._decode.samples)
        if few < FEW_SAMPLES or self._decoding >= view.token_budget:
            return
        whole, decodes = float(view.token_budget), max(1.0, self._decoding)
        context = decodes * self._context
        rest = whole - decodes
        added = self._mixed.seconds((rest, rest * self._work, decodes, context))
        added -= self._decode.seconds((0.0, 0.0, decodes, context))
        alone = self._prefill.seconds((whole, whole * self._work, 0.0, 0.0)) * rest / whole
        if min(alone, added) < (1 - PLAIN) * max(alone, added):
            self._turns.exclusive = alone < added
            self._leans = True

    def _see_rate(self, view: View) -> None:
        """λ, from admissions and the growth of the queue; time without any request is not seen."""
        arrived = self._admitted + view.waiting - self._waiting
        self._arrived = self._arrived * RATE_KEEP + max(0, arrived)
        self._arrival_time = self._arrival_time * RATE_KEEP + self._time - self._rate_at
        self._admitted, self._waiting, self._rate_at = 0, view.waiting, self._time

    def _weigh(self, view: View) -> _Verdict:
        turns = self._turns
        rate = self._arrived / self._arrival_time if self._arrival_time > 0 else 0.0
        prompt, output = max(1.0, self._prompts.value), max(1.0, self._outputs.value)
        traffic = Traffic(
            prompt=prompt,
            output=output,
            rate=max(rate, 1e-9),
            batch=float(turns.reached) if self.crowded else float(view.slots),
            most=min(view.slots, view.total_blocks * view.block_size / (prompt + output / 2)),
            decoding=self._decoding,
            context=self._context,
            work=self._work,
            budget=view.token_budget,
        )
        crowded = self.crowded
        decode = DecodeTimes.of(traffic, self._decode.seconds)
        verdict = _Verdict({False: turns.k, True: turns.k}, {False: inf, True: inf})
        for exclusive, costs in ((False, self._mixed), (True, self._prefill)):
            if not costs.samples:
                continue
            budget = self._choose_budget(exclusive, traffic, decode)

            def admission_s(k: int, exclusive: bool = exclusive, budget: int = budget) -> float:
                if exclusive:
                    return exclusive_s(k, budget, traffic, self._prefill.seconds)
                decodes = max(1.0, traffic.batch - k) if crowded else max(1.0, traffic.decoding)
                return mixed_s(k, decodes, budget, traffic, self._mixed.seconds, decode)

            if crowded:
                k, cost = saturated(admission_s, traffic, self._decode.intercept)
            else:
                k, cost = unsaturated(admission_s, traffic, decode, self._ttft_s)
                cost *= 1.0 if exclusive else 1 - MIXED_BONUS
            verdict.k[exclusive], verdict.cost[exclusive] = k, cost
        return verdict

    def _choose_budget(self, exclusive: bool, traffic: Traffic, decode: DecodeTimes) -> int:
        if exclusive:

            def token_s(tokens: int) -> float:
                return self._prefill.seconds((tokens, tokens * traffic.work, 0.0, 0.0)) / tokens
        else:

            def token_s(tokens: int) -> float:
                return mixed_token_s(tokens, traffic, self._mixed.seconds, decode)

        self._budget.choose(exclusive, traffic.budget, token_s)
        return self._budget.tokens(exclusive, traffic.budget)

    def _choose(self, verdict: _Verdict) -> None:
        turns = self._turns
        gap = verdict.gap(turns.exclusive)
        if min(self._mixed.samples, self._prefill.samples) >= FEWEST_SAMPLES and gap > BETTER:
            self._streak += 1
            if self._streak >= LOOKS or gap > FAR_BETTER or self._steps < YOUNG:
                turns.exclusive = not turns.exclusive
                self._streak = 0
                self._probe_every = FIRST_PROBE
        else:
            self._streak = 0
        turns.k = verdict.k[turns.exclusive]

    def state(self) -> PolicyState:
        """Mode, k, the batch, what a request costs either way, z, probes and the budget, as of the last look."""
        return self._state
