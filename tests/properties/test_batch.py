"""The batch loop against the plain oracle, and what must hold of every run whatever is asked for."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.profiles.cost import CostModel
from harness.profiles.linear import Linear
from harness.profiles.roofline import Roofline
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.prefix_cache import PrefixCache
from harness.simulate.rows import REQUEST_FIELDS, Rows
from policies.catalog import make_policy
from policies.core import DECODE, STEP_COLUMNS, UNLIMITED, Order, Phase, Policy, PolicyState, StepCosts, StepPlan, View
from policies.online.mixed import Mixed
from policies.online.orders import Ranked
from policies.online.threshold import crossover
from tests.support.contents import tokens_of
from tests.support.oracle import LENGTH, TOO_LONG, Oracle, StepRow
from workloads.core.arrivals import Arrival, Closed, ClosedPhases, Poisson
from workloads.core.blocks import Blocks
from workloads.core.stream import Stream
from workloads.core.trace import Trace
from workloads.lengths.filters import with_history
from workloads.lengths.hints import Hints, hints_of
from workloads.prompts.content import Content

Ints = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Flat:
    """Every step costs the same."""

    name: ClassVar[str] = "flat"
    step_s: float = 0.001

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        return self.step_s

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        return np.full(steps, self.step_s)

    def parameters(self) -> dict[str, float]:
        return {"step_s": self.step_s}


@dataclass(frozen=True, slots=True)
class Telltale:
    """A cost that is another with every other count that a step hands over, up to 0.1 ms."""

    name: ClassVar[str] = "telltale"

    def seconds(
        self, prefill_tokens: int, prefill_work: float, decodes: int, decode_context: int, longest: int
    ) -> float:
        told = (prefill_tokens, round(2 * prefill_work), decodes, decode_context, longest)
        primes = (1009, 10007, 7919, 100003, 31337)
        return (1 + sum(count * prime for count, prime in zip(told, primes, strict=True)) % 99991) / 1e9

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> npt.NDArray[np.float64]:
        told = [self.seconds(0, 0.0, decodes, decode_context + j * decodes, longest + j) for j in range(steps)]
        return np.array(told, dtype=np.float64)

    def parameters(self) -> dict[str, float]:
        return {}


class Erratic:
    """Changes its phase whenever anything changes, in ways that no real policy has, but always goes on."""

    def __init__(self, salt: int, order: Order | None) -> None:
        self.salt = salt
        self.told = 0
        self.order = order

    def plan(self, view: View) -> StepPlan:
        # The answer must not change while nothing but the KV cache does: the loop does not ask again then.
        counts = (self.told, view.waiting, view.decoding, view.free_blocks if view.prefilling else 0)
        rng = random.Random(repr((self.salt, counts)))
        admit = rng.choice((0, 1, 2, UNLIMITED))
        if not view.prefilling and view.decoding and rng.random() < 0.3:
            return DECODE
        if not view.prefilling and not view.decoding:
            admit = max(1, admit)
        return StepPlan(rng.choice((Phase.MIXED, Phase.MIXED, Phase.PREFILL)), admit)

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        pass

    def on_admit(self, prompt_tokens: int) -> None:
        self.told += prompt_tokens

    def on_finish(self, output_tokens: int) -> None:
        self.told += output_tokens

    def state(self) -> PolicyState | None:
        return None


Seen = tuple[tuple[int, ...], list[int], list[int]]


class Watching:
    """A policy and what it saw and was told: by the number of steps before each ask, and in order."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.order = policy.order
        self.steps = 0
        self.views: dict[int, Seen] = {}
        self.told: list[tuple[str, int]] = []
        self.producing: list[tuple[int, int, int]] = []

    def plan(self, view: View) -> StepPlan:
        counts = (
            view.slots,
            view.token_budget,
            view.block_size,
            view.total_blocks,
            view.free_blocks,
            view.watermark_blocks,
            view.waiting,
            view.prefilling,
            view.decoding,
        )
        self.views[self.steps] = (counts, list(view.waiting_tokens()), list(view.num_output_tokens()))
        return self.policy.plan(view)

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        self.steps += steps
        self.producing += [(decodes, running, first_tokens)] * steps
        self.policy.on_steps(steps, decodes, running, first_tokens)

    def on_admit(self, prompt_tokens: int) -> None:
        self.told.append(("admit", prompt_tokens))
        self.policy.on_admit(prompt_tokens)

    def on_finish(self, output_tokens: int) -> None:
        self.told.append(("finish", output_tokens))
        self.policy.on_finish(output_tokens)

    def state(self) -> PolicyState | None:
        return self.policy.state()


CHEAP_PREFILL = StepCosts(0.005, 2e-5, 0.012, 2e-4, 0.012, 6e-5, -5e-5, 4e-5)
DEAR_MIXED = StepCosts(0.02, 5e-5, 0.008, 1e-4, 0.03, 2e-4, 3e-4, 1e-4)
CHEAP_MIXED = StepCosts(0.03, 9e-5, 0.006, 1e-4, 0.007, 9e-5, -6e-5, 9e-5)
COSTS = (CHEAP_PREFILL, DEAR_MIXED, CHEAP_MIXED)
MODELS: tuple[CostModel, ...] = (
    *(Linear.of(costs, "published") for costs in COSTS),
    Roofline(weight_read_s=0.018, beta_s=7e-5, kappa_s=1.7e-7, xi_s=2.3e-7, q_s=3e-9),
    Flat(),
    Telltale(),
)


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
        if self.policy in ("erratic", "erratic order"):
            order = Ranked(lambda waiting: waiting.num_prompt_tokens) if self.policy == "erratic order" else None
            return Watching(Erratic(int(dict(self.options)["salt"]), order))
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
    if kind in ("v0", "v1", "sjf", "ljf"):
        return kind, {}
    if kind == "isjl":
        return kind, {
            "alpha": str(draw.choice((0, 1, 3, 10, 30, 100, 1000))),
            "footprint": draw.choice(("decode", "decode", "kv")),
            "plan": draw.choice(("0", "0.5", "0.7", "1")),
            "max_wait": draw.choice(("1", "10", "100", "1000000")),
            "guard": draw.choice(("strict", "strict", "strict", "lenient")),
            "prefill": draw.choice(("mixed", "mixed", "exclusive")),
        }
    if kind in ("erratic", "erratic order"):
        return kind, {"salt": str(draw.integer(0, 1000))}
    often = {"update_every": str(draw.choice((1, 2, 10))), "window": str(draw.choice((1, 5, 40, 500)))}
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


KINDS = ("v1", "v0", "k", "eb", "ebplus", "ebplus", "erratic")
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


def crowded(draw: Draw, kinds: Sequence[str] = ("v1", "ebplus", "erratic", "erratic")) -> Case:
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
        return crowded(drawn, drawn.choice((("v1", "ebplus", "erratic", "erratic"), ORDERED)))
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


@dataclass(frozen=True, slots=True)
class Played:
    """A run of the batch loop, its chunks put together."""

    requests: Ints
    steps: Ints
    gaps: dict[int, list[int]]
    states: list[PolicyState]
    loop: BatchLoop
    policy: Watching
    chunks: list[Rows]

    def column(self, name: str) -> Ints:
        return self.steps[:, STEP_COLUMNS.index(name)]

    def request_column(self, name: str) -> Ints:
        return self.requests[:, REQUEST_FIELDS.index(name)]


def play(case: Case, leap: bool = True, every: int | None = None) -> Played:
    policy = case.new_policy()
    limit = case.max_duration_s
    cache = case.cache()
    loop = BatchLoop(case.stream, policy, case.model, case.limits, leap, limit, case.hints, cache)
    chunks: list[Rows] = []

    def sink(chunk: Rows) -> bool:
        chunks.append(chunk)
        # Asked only between steps, so it must hold there: with every=1, at each of them.
        assert 0 <= loop.state.free_blocks <= loop.state.total_blocks
        assert loop.state.decoding + loop.state.prefilling <= case.limits.slots
        if cache is not None:
            assert loop.state.free_blocks == cache.free
            if len(chunks) % 16 == 1:
                check_blocks(cache, loop.state.total_blocks)
        return True

    assert loop.run(sink, case.every if every is None else every)
    if cache is not None:
        check_blocks(cache, loop.state.total_blocks)
        assert cache.free == loop.state.total_blocks, "a block is held by nobody who runs"
    gaps: dict[int, list[int]] = {}
    for chunk in chunks:
        assert not gaps.keys() & chunk.gaps.keys()
        gaps.update({row: values.tolist() for row, values in chunk.gaps.items()})
    return Played(
        np.concatenate([chunk.requests for chunk in chunks]),
        np.concatenate([chunk.steps for chunk in chunks]),
        gaps,
        chunks[-1].states,
        loop,
        policy,
        chunks,
    )


def check_blocks(cache: PrefixCache, total: int) -> None:
    """Every block is free or held, as often as it says, and found by its key, once."""
    users = Counter(block for held in cache._held.values() for block in held)
    assert [users[block] for block in range(total + 1)] == cache._users
    assert users.keys() | cache._free.keys() == set(range(1, total + 1))
    assert not users.keys() & cache._free.keys()
    assert all(len(held) == len(set(held)) for held in cache._held.values())
    named = {block: key for block, key in enumerate(cache._key) if key >= 0}
    assert {block: key for key, blocks in cache._blocks.items() for block in blocks} == named
    assert sum(map(len, cache._blocks.values())) == len(named)


def oracle_requests(oracle: Oracle) -> list[tuple[int, ...]]:
    return [
        (
            r.row,
            r.due,
            r.due,
            *((r.token_times[0], r.token_times[-1]) if r.token_times else (-1, -1)),
            r.done,
            r.output,
            r.preemptions,
            r.finish,
        )
        for r in oracle.ended
    ]


def check_equal(case: Case, oracle: Oracle, played: Played) -> None:
    """Every integer, every policy state, every token time of the loop is the oracle's."""
    assert tuple(f.name for f in dataclasses.fields(StepRow)) == STEP_COLUMNS[:-1]
    expected = [dataclasses.astuple(row) for row in oracle.steps]
    actual = list(map(tuple, played.steps[:, :-1].tolist()))
    for i, (theirs, ours) in enumerate(zip(expected, actual, strict=False)):
        assert dict(zip(STEP_COLUMNS, theirs, strict=False)) == dict(zip(STEP_COLUMNS, ours, strict=False)), f"step {i}"
    assert len(actual) == len(expected)
    assert list(map(tuple, played.requests.tolist())) == oracle_requests(oracle)
    states = [played.states[i] if i >= 0 else None for i in played.column("state").tolist()]
    assert states == oracle.states
    watched = oracle.policy
    assert isinstance(watched, Watching)
    assert played.policy.views == {at: watched.views[at] for at in played.policy.views}
    assert played.policy.told == watched.told
    assert played.policy.producing == watched.producing
    check_token_times(oracle, played)
    assert played.loop.sent == oracle.sent
    assert played.loop.preemptions == oracle.counts.preemptions


def check_token_times(oracle: Oracle, played: Played) -> None:
    """The gaps of preempted requests are written down, those of all others follow from the steps."""
    ends = played.column("t") + played.column("duration")
    decode_ends = ends[played.column("decode_requests") > 0]
    for request in oracle.ended:
        times = np.array(request.token_times, dtype=np.int64)
        if request.row in played.gaps:
            assert request.preemptions
            assert played.gaps[request.row] == np.diff(times).tolist()
        elif request.finish == LENGTH:
            after = decode_ends[decode_ends > times[0]][: len(times) - 1]
            np.testing.assert_array_equal(times[1:], after)


def check_same(one: Played, other: Played) -> None:
    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.steps, other.steps)
    assert one.gaps == other.gaps
    assert one.states == other.states


def check_conservation(case: Case, played: Played) -> None:
    """What holds of any run, read from its rows alone."""
    limits = case.limits
    n = len(case.prompts)
    # Every request ends exactly once, with its asked-for length or as too long.
    rows = played.request_column("row")
    assert sorted(rows.tolist()) == list(range(n))
    outputs, finishes = played.request_column("output_tokens"), played.request_column("finish")
    for row, output, finish in zip(rows.tolist(), outputs.tolist(), finishes.tolist(), strict=True):
        expected = (case.outputs[row], LENGTH) if case.fits(row) else (0, TOO_LONG)
        assert (output, finish) == expected
    ran = finishes == LENGTH
    due, first, last, done = (played.request_column(c) for c in ("due", "first", "last", "done"))
    assert (due[ran] < first[ran]).all()
    assert (first[ran] <= last[ran]).all()
    assert (last[ran] == done[ran]).all()
    assert ((outputs[ran] == 1) <= (first[ran] == last[ran])).all()

    # Limits, phases and blocks.
    prefill, decodes = played.column("prefill_tokens"), played.column("decode_requests")
    held = played.column("kv_tokens")
    assert (played.column("running") <= limits.slots).all()
    assert (prefill + decodes <= limits.token_budget).all()
    assert (prefill + decodes > 0).all()
    assert (held <= (limits.kv_blocks - 1) * limits.block_size).all()
    assert (held % limits.block_size == 0).all()
    assert (held >= limits.block_size).all()
    np.testing.assert_array_equal(
        played.column("phase"), np.where((prefill > 0) & (decodes > 0), 0, np.where(prefill > 0, 1, 2))
    )
    assert played.loop.state.free_blocks == played.loop.state.total_blocks == limits.kv_blocks - 1
    assert (played.loop.state.waiting, played.loop.state.prefilling, played.loop.state.decoding) == (0, 0, 0)
    check_gap(case, played)
    if case.policy in ("v0", "eb"):
        assert (played.column("phase") != 0).all()
        check_phases(case, played)

    # Work: every token of every request was produced once, every prompt computed again after a preemption.
    assert played.column("producing").sum() == outputs.sum()
    prompts = np.array(case.prompts)[rows[ran]].sum()
    if not played.column("preempted").any():
        assert prefill.sum() == prompts
    assert prefill.sum() >= prompts
    assert played.column("preempted").sum() == played.request_column("preemptions").sum()
    # Each producing request adds 1 … o over its life, whatever happens to it.
    assert played.column("generated_sum").sum() == sum(o * (o + 1) // 2 for o in outputs.tolist())
    assert played.column("footprint_sum").sum() == sum(
        case.prompts[row] * o + o * (o + 1) // 2 for row, o in zip(rows.tolist(), outputs.tolist(), strict=True)
    )

    # Time goes on without a break except where nothing is there to do.
    starts, durations = played.column("t"), played.column("duration")
    assert (durations > 0).all()
    gaps = starts[1:] - (starts + durations)[:-1]
    if case.due_ns is None:
        assert (gaps == 0).all()
        assert not len(starts) or starts[0] == 0
    else:
        assert (gaps >= 0).all()
        assert np.isin(starts[1:][gaps > 0], case.due_ns).all()
        assert (played.column("waiting")[:-1][gaps > 0] == 0).all()


def check_gap(case: Case, played: Played) -> None:
    """No two that give a token in one step are ever further apart than a strict guard allows."""
    given = dict(case.options)
    if case.policy == "ljf":
        given["alpha"] = "0"
    if case.policy not in ("ljf", "isjl") or given.get("guard") == "lenient":
        return
    count = "footprint" if given.get("footprint") == "kv" else "generated"
    assert (played.column(f"{count}_max") - played.column(f"{count}_min") <= int(given["alpha"])).all()


def check_phases(case: Case, played: Played) -> None:
    """A chunked prompt finishes before the phase ends: each time decodes begin, as many produce as hold a slot."""
    decoding = played.column("phase") == 2
    np.testing.assert_array_equal(played.column("decode_requests")[decoding], played.column("running")[decoding])


# Slow only where hypothesis shrinks.
few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@few
@given(cases())
def test_the_loop_equals_the_oracle(case: Case) -> None:
    oracle, played = case.oracle(), play(case)
    check_equal(case, oracle, played)
    check_conservation(case, played)


@few
@given(phased_cases())
def test_a_schedule_of_concurrency_equals_the_oracle(case: Case) -> None:
    played = play(case)
    check_equal(case, case.oracle(), played)
    check_same(played, play(case, leap=False, every=1))


@few
@given(talking_cases())
def test_conversations_equal_the_oracle(case: Case) -> None:
    played = play(case)
    check_equal(case, case.oracle(), played)
    check_same(played, play(case, leap=False, every=1))


def check_found(oracle: Oracle, played: Played) -> None:
    """The prefix cache of the loop found what the oracle found, and made as much room."""
    cached = [tokens for rows in played.chunks for tokens in rows.cached_tokens or ()]
    assert cached == [request.found if request.seen else None for request in oracle.ended]
    cache = played.loop._cache
    assert cache is not None
    assert cache.evictions == oracle.counts.evictions


@few
@given(cached_cases())
def test_a_prefix_cache_equals_the_oracle(case: Case) -> None:
    oracle, played = case.oracle(), play(case, every=1)
    check_equal(case, oracle, played)
    check_found(oracle, played)


def test_prefix_caches_equal_the_oracle_where_all_of_their_rules_are_met() -> None:
    met: Counter[str] = Counter()
    for seed in range(120):
        case = cached_case(Seeded(seed))
        oracle, played = case.oracle(), play(case)
        check_equal(case, oracle, played)
        check_found(oracle, played)
        counts = oracle.counts
        for rule in ("hits", "own_hits", "whole_hits", "evictions", "duplicates", "preemptions", "chunked"):
            met[rule] += getattr(counts, rule)
    assert min(met.values()) > 40, met


@few
@given(cached_cases())
def test_a_boundless_cache_finds_all_that_recurs(case: Case) -> None:
    tokens = sum(case.prompts) + sum(case.outputs)
    limits = dataclasses.replace(case.limits, kv_blocks=2 + tokens // case.limits.block_size + 2 * len(case.prompts))
    case = dataclasses.replace(case, policy="v1", options=(), lengths="none", limits=limits)
    played = play(case)
    cached = [tokens for rows in played.chunks for tokens in rows.cached_tokens or ()]
    content = Content(case.stream.trace, limits.block_size, case.talks is not None)
    assert sum(tokens or 0 for tokens in cached) == content.recurring_tokens()


@few
@given(cached_cases())
def test_a_cache_that_nobody_shares_changes_nothing(case: Case) -> None:
    case = dataclasses.replace(case, talks=None, shared=None)
    with_cache, without = play(case), play(dataclasses.replace(case, cached=False), leap=False)
    if not without.loop.preemptions:
        assert with_cache.steps.tolist() == without.steps.tolist()
        assert with_cache.requests.tolist() == without.requests.tolist()


@few
@given(cases())
def test_leaping_gives_the_same_bits_as_stepping(case: Case) -> None:
    one_by_one = play(case, leap=False, every=1)
    check_same(play(case), one_by_one)
    check_conservation(case, one_by_one)


def seeded_cases() -> Iterator[Case]:
    for seed in range(150):
        yield case_of(Seeded(seed))
        if seed % 5 == 0:
            yield crowded(Seeded(seed))
    for seed in range(200, 300):
        yield crowded(Seeded(seed), ORDERED) if seed % 4 == 0 else case_of(Seeded(seed), kinds=ORDERED)
    # An update asks for 30 completions: more requests for the policy that changes its mode at updates.
    for seed in range(150, 200):
        yield case_of(Seeded(seed), 60, 200, ("ebplus",))


def tally(case: Case, oracle: Oracle) -> Counter[str]:
    seen: Counter[str] = Counter({f.name: getattr(oracle.counts, f.name) for f in dataclasses.fields(oracle.counts)})
    modes = [state.mode for state in oracle.states if state is not None]
    if case.policy == "isjl":
        seen["guarded_preemptions"] = oracle.counts.preemptions
    seen["mode_changes"] = sum(a != b for a, b in pairwise(modes))
    prefilling = [plan.phase is Phase.PREFILL for plan in oracle.plans]
    if case.policy in ("v0", "eb"):
        seen["gate_closed"] = sum(
            before and not now and row.waiting > 0 and row.running < case.limits.slots
            for before, now, row in zip(prefilling, prefilling[1:], oracle.steps, strict=False)
        )
    return seen


def test_seeded_cases_equal_the_oracle_and_see_everything_happen() -> None:
    seen: Counter[str] = Counter()
    for case in seeded_cases():
        oracle = case.oracle()
        leapt, stepped = play(case), play(case, leap=False, every=1)
        check_equal(case, oracle, leapt)
        check_same(leapt, stepped)
        check_conservation(case, leapt)
        seen += tally(case, oracle)
        seen["leaps"] += len(stepped.chunks) - len(play(case, every=1).chunks)
    print(dict(seen))
    floors = {
        "preemptions": 50,
        "chunked": 50,
        "rejected": 50,
        "mode_changes": 50,
        "gate_closed": 50,
        "watermark_held": 50,
        "starved_chunks": 50,
        "empty_prefills": 50,
        "starved_prefills": 5,
        "held_back": 50,
        "guarded_preemptions": 50,
        "leaps": 50,
    }
    assert {name: seen[name] for name, floor in floors.items() if seen[name] < floor} == {}


@few
@given(cases())
def test_the_same_case_gives_the_same_rows(case: Case) -> None:
    check_same(play(case), play(case, every=3))


@few
@given(cases())
def test_arrival_order_as_an_order_is_the_queue_itself(case: Case) -> None:
    plain = dataclasses.replace(case, policy="v1", options=())
    check_same(play(plain), play(dataclasses.replace(plain, policy="in arrival order")))


@few
@given(cases(), st.floats(0, 1))
def test_nothing_is_sent_after_the_time_is_up_and_what_is_in_flight_ends(case: Case, share: float) -> None:
    whole = play(case)
    case = dataclasses.replace(case, max_duration_s=share * whole.loop.drain().now_ns / 1e9)
    assert case.max_duration_s is not None
    oracle, played = case.oracle(), play(case)
    check_equal(case, oracle, played)
    check_same(played, play(case, leap=False))
    assert (played.request_column("sent") <= round(case.max_duration_s * 1e9)).all()
    assert sorted(played.request_column("row").tolist()) == list(range(played.loop.sent))
    assert played.loop.state.free_blocks == played.loop.state.total_blocks
    if case.due_ns is not None:
        assert played.loop.sent == sum(due <= round(case.max_duration_s * 1e9) for due in case.due_ns)


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


NAMED: tuple[tuple[str, dict[str, str]], ...] = (
    ("v0", {}),
    ("v1", {}),
    ("eb", {"k": "1"}),
    ("eb", {"k": "N"}),
    ("eb", {"update_every": "1"}),
    ("ebplus", {"delta": "-1", "update_every": "1", "cooldown": "1"}),
    ("ebplus", {"delta": "1", "update_every": "1", "cooldown": "1"}),
)


@pytest.mark.parametrize(("policy", "options"), NAMED, ids=str)
@pytest.mark.parametrize("slots", [1, 2, 7])
def test_no_request_waits_for_ever(policy: str, options: dict[str, str], slots: int) -> None:
    options = {name: value.replace("N", str(slots)) for name, value in options.items()}
    rng = random.Random(slots)
    some, many = [rng.randint(1, 50) for _ in range(40)], [rng.randint(1, 60) for _ in range(40)]
    for case in (
        tight(policy, options, some, many, slots=slots),
        tight(policy, options, [1000 if i % 7 == 0 else 3 for i in range(40)], many, slots=slots),  # giant prompts
        tight(policy, options, some, [1] * 40, slots=slots),  # no decode at all
        tight(policy, options, [1] * 40, [1] * 40, slots=slots, block_size=1),  # a cache of two tokens
        tight(policy, options, some, many, slots=slots, token_budget=slots),  # a token a slot
        tight(policy, options, some, many, slots=slots, token_budget=4096, kv_blocks=4096),
        tight(policy, options, [5], [3], slots=slots),  # fewer requests than k
    ):
        for now in (case, dataclasses.replace(case, due_ns=None, concurrency=2 * slots)):
            oracle, played = now.oracle(), play(now)
            check_equal(now, oracle, played)
            check_conservation(now, played)
            assert (played.request_column("finish") == LENGTH).all()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name}")
def test_leaps_of_thousands_of_steps_give_the_same_bits(model: CostModel) -> None:
    lengths = [(7, 9000), (300, 5003), (1, 4096), (20, 4097), (20, 8192)]
    case = dataclasses.replace(
        tight("v1", {}, [p for p, _ in lengths], [o for _, o in lengths], kv_blocks=1100),
        due_ns=(0, 0, 10**6, 10**9, 10**9),
        model=model,
    )
    leapt = play(case)
    check_same(leapt, play(case, leap=False))
    check_conservation(case, leapt)


@pytest.mark.parametrize(
    ("policy", "options"), [NAMED[1], ("eb", {"k": "16"}), ("ebplus", {"delta": "-1e-4"})], ids=str
)
def test_a_batch_of_sixty_four_equals_the_oracle(policy: str, options: dict[str, str]) -> None:
    rng = np.random.default_rng(7)
    prompts, outputs = rng.geometric(1 / 150, 400).tolist(), rng.geometric(1 / 80, 400).tolist()
    case = tight(policy, options, prompts, outputs, slots=64, token_budget=1024, kv_blocks=700)
    case = dataclasses.replace(case, due_ns=None, concurrency=100, model=MODELS[3], every=500)
    oracle, leapt = case.oracle(), play(case)
    check_equal(case, oracle, leapt)
    check_same(leapt, play(case, leap=False))
    check_conservation(case, leapt)
    assert leapt.column("running").max() > 40
    assert policy != "v1" or leapt.loop.preemptions
