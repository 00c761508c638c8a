"""Random runs of the batch loop: traces, engines, policies, all that decides one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from harness.profiles.cost import CostModel
from harness.simulate.limits import EngineLimits
from harness.simulate.prefix_cache import PrefixCache
from policies.catalog import make_policy
from policies.core import StepCosts
from policies.online.mixed import Mixed
from policies.online.orders import Ranked
from policies.online.threshold import crossover
from tests.support.batch_models import CHEAP_PREFILL, COSTS, MODELS, Watching
from tests.support.contents import tokens_of
from tests.support.erratic_policy import make_erratic
from tests.support.oracle import Oracle
from workloads.core.arrivals import Arrival, Closed, ClosedPhases, Poisson
from workloads.core.blocks import Blocks
from workloads.core.stream import Stream
from workloads.core.trace import Trace
from workloads.lengths.filters import with_history
from workloads.lengths.hints import Hints, hints_of
from workloads.prompts.content import Content

T = TypeVar("T")


class Draw(Protocol):
    """Where a case's choices come from: a seed, or hypothesis, which can shrink them."""

    def integer(self, low: int, high: int) -> int: ...

    def choice(self, options: Sequence[T]) -> T: ...


class Seeded:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def choice(self, options: Sequence[T]) -> T:
        return self.random.choice(options)


class Drawn:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def choice(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))


@dataclass(frozen=True)
class Case:
    """All that decides a run."""

    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    due_ns: tuple[int, ...] | None
    concurrency: int
    limits: EngineLimits
    policy: str
    options: tuple[tuple[str, str], ...]
    costs: StepCosts
    model: CostModel
    every: int = 4096
    phases: tuple[tuple[int, ...], tuple[int, ...], bool] | None = None
    max_duration_s: float | None = None
    lengths: str = "none"
    talks: tuple[tuple[int, ...], tuple[int, ...], int] | None = None  # session and turn of each, time to think
    cached: bool = False
    shared: Blocks | None = None

    @cached_property
    def hints(self) -> Hints | None:
        return hints_of(self.lengths, self.stream.trace, 0)

    @cached_property
    def stream(self) -> Stream:
        trace = Trace("random", np.array(self.prompts, np.int64), np.array(self.outputs, np.int64), blocks=self.shared)
        think_ns = None
        if self.talks is not None:
            session, turn, think_ns = self.talks
            trace = dataclasses.replace(trace, session=np.array(session, np.int64), turn=np.array(turn, np.int64))
        if self.due_ns is None and self.phases:
            return Stream(trace, ClosedPhases(*self.phases), None)
        if self.due_ns is None:
            return Stream(trace, Closed(self.concurrency), None, think_ns)
        arrival: Arrival = Poisson(1.0)
        return Stream(trace, arrival, np.array(self.due_ns, np.int64), think_ns)

    def new_policy(self) -> Watching:
        if self.policy == "in arrival order":
            return Watching(Mixed(Ranked(lambda _: 0)))
        if self.policy in ERRATIC:
            salt = int(dict(self.options)["salt"])
            return Watching(make_erratic(salt, self.policy == "erratic order", self.policy == "erratic timed"))
        return Watching(make_policy(self.policy, dict(self.options), self.limits.slots, self.costs))

    def fits(self, row: int) -> bool:
        cache = (self.limits.kv_blocks - 1) * self.limits.block_size
        return self.prompts[row] + self.outputs[row] <= min(cache, self.limits.max_model_len)

    def oracle(self) -> Oracle:
        contents = tokens_of(self.stream.trace, self.talks is not None) if self.cached else None
        policy, limit = self.new_policy(), self.max_duration_s
        return Oracle(self.stream, policy, self.model, self.limits, limit, self.hints, contents).run()

    def cache(self) -> PrefixCache | None:
        if not self.cached:
            return None
        limits = self.limits
        content = Content(self.stream.trace, limits.block_size, self.talks is not None)
        return PrefixCache(content, limits.kv_blocks - 1, limits.block_size)


def policy_of(
    draw: Draw, kinds: Sequence[str], slots: int, costs: StepCosts, prompts: list[int], outputs: list[int]
) -> tuple[str, dict[str, str]]:
    kind = draw.choice(kinds)
    if kind in ("v0", "v1", "sjf", "ljf", "adaptive"):
        return kind, {}
    if kind == "mb":
        return kind, {"k": str(draw.choice((1, slots, draw.integer(1, slots))))}
    if kind == "isjl":
        return kind, {
            "alpha": str(draw.choice((0, 1, 3, 10, 30, 100, 1000))),
            "footprint": draw.choice(("decode", "decode", "kv")),
            "plan": draw.choice(("0", "0.5", "0.7", "1")),
            "max_wait": draw.choice(("1", "10", "100", "1000000")),
            "guard": draw.choice(("strict", "strict", "strict", "lenient")),
            "prefill": draw.choice(("mixed", "mixed", "exclusive")),
        }
    if kind in ERRATIC:
        return kind, {"salt": str(draw.integer(0, 1000))}
    often = {"update_every": str(draw.choice((1, 2, 10))), "window": str(draw.choice((1, 5, 40, 500)))}
    gate = draw.choice(("paper", "forecast"))
    often["gate"] = gate
    if kind == "k":
        return "eb", {"k": str(draw.choice((1, slots, draw.integer(1, slots)))), **often}
    often["correction"] = draw.choice(("none", "first_order"))
    theta = draw.choice((0.01, 0.3, 0.6))
    often["theta_min"] = str(theta)
    if kind == "eb":
        return "eb", often
    # Where the two sides of the crossover meet while some of the slots are taken, modes change and change again.
    n_obs = slots * draw.choice((0.3, 0.5, 0.7))
    mu_l, mu_o = sum(prompts) / len(prompts), sum(outputs) / len(outputs)
    left, right = crossover(max(theta, 0.2), mu_l, mu_o, n_obs, 0.0, costs)
    delta = draw.choice((left - right, left - right, left - right, 0.0, -1e-3))
    smoothing, cooldown = draw.choice(("0.1", "0.5", "1.0")), draw.choice(("1", "1", "2"))
    return "ebplus", {"delta": str(delta), "smoothing": smoothing, "cooldown": cooldown, **often}


ERRATIC = ("erratic", "erratic order", "erratic timed")
KINDS = ("v1", "v0", "k", "eb", "ebplus", "ebplus", "mb", "adaptive", "erratic", "erratic timed")


ORDERED = ("sjf", "ljf", "isjl", "isjl", "isjl", "erratic order")


LENGTHS = ("none", "oracle", "oracle", "noisy:sigma=0.3", "noisy:sigma=2", "interval:sigma=0.5")


def case_of(draw: Draw, least: int = 1, most: int = 80, kinds: Sequence[str] = KINDS) -> Case:
    n = draw.integer(least, most)
    longest_prompt, longest_output = draw.choice((1, 20, 100, 400)), draw.choice((1, 6, 30, 120))
    prompts = [draw.integer(1, longest_prompt) for _ in range(n)]
    outputs = [draw.integer(1, longest_output) for _ in range(n)]
    totals = sorted(p + o for p, o in zip(prompts, outputs, strict=True))

    slots = draw.integer(1, 16)
    block_size = draw.choice((1, 3, 8, 16))
    # Barely the largest request, a few of them, or all at once; now and then not even the largest.
    asked = draw.choice(
        (totals[-1], totals[-1], totals[-1] * 2, sum(totals[-slots:]) // 2, sum(totals), totals[n // 2])
    )
    due_ns = None
    if draw.choice((True, False)):
        gaps = [draw.choice((0, 0, 1, 10**6, 3 * 10**7, 10**9)) * draw.integer(1, 3) for _ in range(n)]
        due_ns = tuple(np.cumsum(gaps).tolist())
    costs = draw.choice(COSTS)
    policy, options = policy_of(draw, kinds, slots, costs, prompts, outputs)
    return Case(
        tuple(prompts),
        tuple(outputs),
        due_ns,
        draw.integer(1, 40),
        EngineLimits(
            slots=slots,
            token_budget=draw.choice((slots, slots + draw.integer(0, 60), draw.integer(slots, 512))),
            kv_blocks=-(-asked // block_size) + 1 + draw.choice((0, 0, 1, 5)),
            block_size=block_size,
            max_model_len=draw.choice((40960, 40960, totals[-1], totals[n * 3 // 4])),
            watermark=draw.choice((0.0, 0.01, 0.05, 0.1)),
        ),
        policy,
        tuple(options.items()),
        costs,
        draw.choice(MODELS),
        every=draw.choice((1, 7, 4096)),
        lengths=draw.choice(LENGTHS) if policy in ORDERED else "none",
    )


def phases_of(draw: Draw, n: int) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Levels of concurrency and requests of each, the last of which begins within n."""
    counts: list[int] = []
    while sum(counts) < n and len(counts) < 4:
        counts.append(draw.integer(1, n))
    while len(counts) > 1 and sum(counts[:-1]) >= n:
        counts.pop()
    return tuple(draw.integer(1, 20) for _ in counts), tuple(counts), draw.choice((True, False))


def crowded(draw: Draw, kinds: Sequence[str] = ("v1", "ebplus", "erratic", "erratic timed")) -> Case:
    """Long prompts in small chunks among many decodes, with KV for about two: chunks that find no block."""
    case = case_of(draw, 20, 80, kinds)
    prompts = tuple(draw.choice((1, 1, 5, 400)) for _ in case.prompts)
    outputs = tuple(draw.integer(20, 120) for _ in case.outputs)
    slots = draw.integer(12, 16)
    limits = dataclasses.replace(
        case.limits,
        slots=slots,
        token_budget=slots + draw.integer(10, 40),
        kv_blocks=1 + -(-draw.integer(520, 1000) // case.limits.block_size),
        max_model_len=40960,
        watermark=0.0,
    )
    return dataclasses.replace(case, prompts=prompts, outputs=outputs, due_ns=None, concurrency=20, limits=limits)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    drawn = Drawn(draw)
    if drawn.integer(0, 4) == 4:
        return crowded(drawn, drawn.choice((("v1", "ebplus", "erratic", "erratic timed"), ORDERED)))
    return case_of(drawn, kinds=drawn.choice((KINDS, KINDS, ORDERED)))


@st.composite
def phased_cases(draw: st.DrawFn) -> Case:
    """A closed loop whose concurrency changes."""
    case = draw(cases())
    return dataclasses.replace(case, due_ns=None, phases=phases_of(Drawn(draw), len(case.prompts)))


@st.composite
def talking_cases(draw: st.DrawFn) -> Case:
    """Requests that are the turns of conversations, in any order and some turns twice, and perhaps an early end."""
    case, drawn = draw(cases()), Drawn(draw)
    n = len(case.prompts)
    few_sessions = drawn.integer(1, n)
    session = tuple(drawn.integer(1, few_sessions) for _ in range(n))
    turn = tuple(drawn.choice((row, row, n - row, drawn.integer(0, 3))) for row in range(n))
    think = drawn.choice((0, 0, 1, 10**6, 10**9))
    seconds = drawn.choice((None, None, 0.01, 0.3))
    return dataclasses.replace(case, talks=(session, turn, think), max_duration_s=seconds)


def cached_case(draw: Draw) -> Case:
    """Requests that share prefixes: conversations, blocks that a trace names, or only with themselves."""
    case = case_of(draw, 2, 40, draw.choice((KINDS, KINDS, ORDERED)))
    n, limits = len(case.prompts), case.limits
    prompts = tuple(min(one, 120) for one in case.prompts)
    outputs = tuple(min(one, 40) for one in case.outputs)
    case = dataclasses.replace(case, prompts=prompts, outputs=outputs, cached=True)
    kind = draw.choice(("conversations", "conversations", "blocks", "blocks", "alone"))
    if kind == "conversations":
        session = tuple(draw.integer(1, max(1, n // 3)) for _ in range(n))
        turn = tuple(draw.choice((row, row, row, draw.integer(0, 3))) for row in range(n))
        think = draw.choice((0, 1, 10**6, 3 * 10**7))
        case = dataclasses.replace(case, talks=(session, turn, think))
        case = dataclasses.replace(case, prompts=tuple(with_history(case.stream.trace).prompt_tokens.tolist()))
    elif kind == "blocks":
        size = draw.choice((1, 4, 16, 24, 64))
        known = draw.integer(1, 4)
        ids = [
            [draw.integer(1, known) + 10 * place for place in range(draw.integer(0, -(-one // size)))]
            for one in prompts
        ]
        case = dataclasses.replace(case, shared=Blocks(ids, size))
    totals = sorted(p + o for p, o in zip(case.prompts, case.outputs, strict=True))
    asked = draw.choice((totals[-1], totals[-1] * 2, sum(totals[-limits.slots :]) // 2, sum(totals), totals[n // 2]))
    blocks = -(-asked // limits.block_size) + 1 + draw.choice((0, 1, 5))
    return dataclasses.replace(case, limits=dataclasses.replace(limits, kv_blocks=blocks, max_model_len=40960))


@st.composite
def cached_cases(draw: st.DrawFn) -> Case:
    return cached_case(Drawn(draw))


# Cases are large: slow to draw, and slow where hypothesis shrinks. There are two thirds of what the profile says.
assert settings.default is not None
large_cases = settings(
    deadline=None, suppress_health_check=list(HealthCheck), max_examples=settings.default.max_examples * 2 // 3
)


def tight(policy: str, options: dict[str, str], prompts: Sequence[int], outputs: Sequence[int], **limits: int) -> Case:
    """All requests at once against a KV cache that holds the largest of them and no more, unless told otherwise."""
    block_size = limits.get("block_size", 16)
    largest = max(p + o for p, o in zip(prompts, outputs, strict=True))
    given = {"slots": 4, "token_budget": 64, "kv_blocks": 1 + -(-largest // block_size)} | limits
    return Case(
        tuple(prompts),
        tuple(outputs),
        (0,) * len(prompts),
        1,
        EngineLimits(**given),
        policy,
        tuple(options.items()),
        CHEAP_PREFILL,
        MODELS[0],
    )
