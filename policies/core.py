"""The decision core: what a policy sees, what it answers, and what it is told.

A plan says for how many steps it holds. An engine asks `plan` before a step when the last plan has run out, and sooner
when something has changed since: a request arrived, finished, was admitted or preempted, the step before computed
prompt tokens, or the time has come that the plan named. Growth of the KV cache alone is no change. A policy with an
`order` is asked before each step in which anyone waits: whom the order names may change as time goes by. Every engine
asks at the same steps, so that a policy may keep count of whatever it likes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class PolicyError(ValueError):
    """A policy option that the user can mend: one line that names the option and the remedy."""


class PolicyFault(RuntimeError):
    """A policy failed or would stall the engine: the line names the policy and the step."""


class Phase(enum.IntEnum):
    """What the next step may hold."""

    MIXED = 0
    PREFILL = 1
    DECODE = 2


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The answer: the phase of the coming steps and how many waiting requests may enter in each.

    It holds for `steps` steps where nothing changes: for one unless the policy says that it need not be asked again.
    Each may hold at most `tokens` prompt tokens, from 1, beside what its decodes leave of the engine's own budget; in
    vLLM with asynchronous scheduling one more for each request that has all its tokens on the way.
    With `again_at_s` (on the clock of `TimedView.now_s`) it is asked before the first step from then on as well. A
    policy may then hold everybody back while nothing runs: time goes on until then, or until a request arrives.
    """

    phase: Phase
    admit: int
    steps: int = 1
    tokens: int = 1 << 62
    again_at_s: float | None = None


UNLIMITED = 1 << 62
# A policy may hold all back that long while nothing runs, s: what asks for more has lost its way.
LONGEST_HOLD_S = 60.0
# These hold until something changes.
MIXED = StepPlan(Phase.MIXED, UNLIMITED, UNLIMITED)
DECODE = StepPlan(Phase.DECODE, 0, UNLIMITED)


class View(Protocol):
    """What a policy may look at: counts at once, single requests only when it asks."""

    slots: int  # N, the most requests that run at once
    token_budget: int  # B, the most tokens a step may schedule
    block_size: int  # tokens a KV block
    total_blocks: int  # KV blocks that requests can hold
    watermark_blocks: int  # blocks that admission keeps free while anything runs
    waiting: int  # requests in the queue, preempted ones included
    prefilling: int  # requests that hold a slot and have prompt tokens left to compute
    decoding: int  # requests that hold a slot and produce a token a step

    @property
    def free_blocks(self) -> int:
        """KV blocks that nobody holds at this moment."""

    def waiting_tokens(self) -> Iterator[int]:
        """Tokens to prefill of each waiting request, first come first: its prompt and, once preempted, its output."""

    def num_output_tokens(self) -> Sequence[int]:
        """Output tokens produced so far of each decoding request, descending."""

    def footprints(self) -> Sequence[int]:
        """Prompt plus output tokens so far of each decoding request, descending."""

    def partial_prefills(self) -> Sequence[PartialPrefill]:
        """The requests that hold a slot and have tokens left to compute, in order of admission."""


class TimedView(View, Protocol):
    """What an engine shows besides: the time, and who waits since when."""

    @property
    def now_s(self) -> float:
        """The engine's clock before this step, s: virtual time, or since the engine was made."""

    def waiting_requests(self) -> Iterator[WaitingRequest]:
        """The requests in the queue, in its order: with the times at which they came and should be answered."""


@dataclass(frozen=True, slots=True)
class PartialPrefill:
    """A request that holds a slot while its prefill still has tokens to compute.

    `num_output_tokens` counts what it produced before it was preempted, 0 where it never was.
    """

    tokens_left: int
    num_prompt_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A waiting request as an admission order sees it.

    `request_id` is the engine's own name for it. `num_output_tokens` counts the output so far, above 0 once it was
    preempted. `hint_low` and `hint_high` bound the output that its sender expects (tokens); None where nobody said.
    `arrival_s` is on the clock of `TimedView.now_s`; `deadline_s`, for the first token, is later by the run's limit on
    TTFT (`--slo ttft_s=…`), None where there is none.
    """

    request_id: Hashable
    num_prompt_tokens: int
    num_output_tokens: int = 0
    hint_low: int | None = None
    hint_high: int | None = None
    arrival_s: float = 0.0
    deadline_s: float | None = None


class Order(Protocol):
    """A waiting queue with an order of its own, held by the policy and filled and drawn from by the engine.

    An engine that finds a policy's `order` puts every waiting request here and admits what `peek` names,
    within its own limits (slots, tokens, blocks), until `peek` gives None. `peek` and `pop` speak of the step that
    the last `plan` was asked for.
    """

    def push(self, request: WaitingRequest) -> None:
        """A request has arrived: it waits from now on."""

    def push_front(self, request: WaitingRequest) -> None:
        """A request was preempted: it comes back ahead of what has never run."""

    def peek(self, view: View) -> WaitingRequest | None:
        """The request that is to start now; None where none may, though some wait."""

    def pop(self, view: View) -> WaitingRequest:
        """Takes out what `peek` named: it starts in this step."""

    def remove(self, request_id: Hashable) -> None:
        """A waiting request was aborted: it waits no longer."""

    def __len__(self) -> int:
        """All that wait, whether or not they may start now."""

    def __iter__(self) -> Iterator[WaitingRequest]:
        """All that wait, in the order in which they would start as far as that is known."""


class Policy(Protocol):
    """A scheduler policy. It never sees an engine, a clock of its own, or vLLM.

    One that has a method `on_timed_step` as well is told what its steps took (policies/timed.py).
    """

    @property
    def order(self) -> Order | None:
        """The waiting queue's own order; None: first come, first served."""

    def plan(self, view: View) -> StepPlan:
        """What the next step may hold."""

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """`steps` steps ran, each with this many decodes and requests holding a slot.

        `first_tokens` prompts were completed in them; each gave a token.
        """

    def on_admit(self, prompt_tokens: int, /) -> None:
        """A request got a slot for the first time."""

    def on_finish(self, output_tokens: int, /) -> None:
        """A request completed with this many output tokens."""

    def state(self) -> PolicyState | None:
        """What the policy held to be true when it planned, for the step log; the same object until it changes.

        Asked once after each `plan`.
        """


@dataclass(frozen=True, slots=True)
class PolicyState:
    """A row of the step log's policy columns; None where the policy has no such thing.

    `theta` is θ*, `p0` the exposure estimate p̄ (1/token), `eta` the hazard's slope (1/token²), `mu_l` the
    mean prompt (tokens), `n_obs` the smoothed number of running requests; `crossover_left` and
    `crossover_right` are the two sides of the crossover inequality (s/token). Of a policy that learns, `cost_mixed_s`
    and `cost_exclusive_s` are what a request is expected to cost with mixed and with exclusive steps (s), `z` the
    standard deviations of its KV forecast kept free, `probes` the fills that took the other kind of step, `budget` the
    most tokens of a step. `own` are the values of the columns that a policy of a user's own declares (policies/own).
    """

    k: int | None = None
    n: int | None = None
    mode: str | None = None
    theta: float | None = None
    p0: float | None = None
    eta: float | None = None
    mu_l: float | None = None
    n_obs: float | None = None
    crossover_left: float | None = None
    crossover_right: float | None = None
    correction_capped: bool | None = None
    cost_mixed_s: float | None = None
    cost_exclusive_s: float | None = None
    z: float | None = None
    probes: int | None = None
    budget: int | None = None
    own: tuple[float, ...] | None = None


# Times are the engine's monotonic clock, ns. `phase` counts as in harness.core.records.PHASES; `state` is the place
# of the policy's state among the STATE records before it, -1 for none.
STEP_COLUMNS = (
    "t",
    "duration",
    "phase",
    "prefill_tokens",
    "decode_requests",
    "running",
    "waiting",
    "preempted",
    "kv_tokens",
    "producing",
    "generated_sum",
    "generated_min",
    "generated_max",
    "footprint_sum",
    "footprint_min",
    "footprint_max",
    "state",
)


@dataclass(frozen=True, slots=True)
class StepCosts:
    """The linear step-cost constants that the closed forms need.

    Seconds a step (`alpha_*`), seconds a token or request (`beta_*`); a mixed step costs
    α_MB + β_MB(r)·tokens with β_MB(r) = a + b·r + c·r² in s/token. Raises PolicyError where α_d ≤ 0
    (θ0 would be 1), a slope is not positive or a figure is not finite.
    """

    alpha_p_s: float
    beta_p_s: float
    alpha_d_s: float
    beta_d_s: float
    alpha_mb_s: float
    mixed_a_s: float
    mixed_b_s: float
    mixed_c_s: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not math.isfinite(getattr(self, name)):
                raise PolicyError(f"{name} is {getattr(self, name)}: step costs must be finite; calibrate again")
        if self.alpha_d_s <= 0:
            raise PolicyError(f"alpha_d_s is {self.alpha_d_s}: with α_d = 0 the threshold θ0 is 1; calibrate again")
        if self.alpha_p_s < 0 or self.alpha_mb_s < 0:
            raise PolicyError("alpha_p_s and alpha_mb_s must not be negative; calibrate again")
        for name in ("beta_p_s", "beta_d_s"):
            if getattr(self, name) <= 0:
                raise PolicyError(
                    f"{name} is {getattr(self, name)}: a step must cost more with more work; calibrate again"
                )

    def beta_mb(self, r: float) -> float:
        """β_MB(r), s/token, at the decode ratio r in [0, 1]."""
        return self.mixed_a_s + r * (self.mixed_b_s + r * self.mixed_c_s)


def due_ns(again_at_s: float | None) -> int:
    """The first whole nanosecond at which a plan's `again_at_s` has come; never (UNLIMITED) without one."""
    return UNLIMITED if again_at_s is None else math.ceil(again_at_s * 1e9)


def floor_share(share: float, whole: int) -> int:
    """floor(share·whole) of a share that a user wrote in decimals: 0.29 of 100 is 29, though 28.999… in doubles."""
    return math.floor(share * whole + 1e-9)
