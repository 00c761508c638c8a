"""ISJL and LJF on random traces: never a gap above α, nobody lost, nobody starved, aborts or not."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.core import Order, PartialPrefill, Phase, Policy, View, WaitingRequest
from policies.online.guard import GuardOptions
from policies.online.isjl import Isjl
from policies.online.mixed import Mixed
from policies.online.orders import Ranked, expected
from tests.support.batch_cases import Case, Seeded, case_of, crowded
from tests.support.batch_played import check_conservation, play

# Strict traces, in `make check` and in `make soak`.
TRACES = 10_000 if settings.default is not None and settings.default.max_examples > 1000 else 100


def strict_case(seed: int) -> Case:
    """A random trace under strict ISJL; every fourth with KV for about two long prompts."""
    draw = Seeded(seed)
    case = crowded(draw, ("isjl",)) if seed % 4 == 0 else case_of(draw, kinds=("isjl",))
    options = tuple((name, "strict" if name == "guard" else value) for name, value in case.options)
    return dataclasses.replace(case, options=options)


def test_no_step_of_a_strict_run_has_a_gap_above_alpha() -> None:
    """No exception, steps after a preemption or a starved chunk included: who comes back is guarded as well."""
    seen: Counter[str] = Counter()
    for seed in range(TRACES):
        case = strict_case(seed)
        played = play(case)
        check_conservation(case, played)  # the gap on every step, and that every request ends
        seen["steps"] += len(played.steps)
        seen["preemptions"] += played.loop.preemptions
        given = dict(case.options)
        count = "footprint" if given["footprint"] == "kv" else "generated"
        gap = played.column(f"{count}_max") - played.column(f"{count}_min")
        seen["steps at alpha"] += int((gap == int(given["alpha"])).sum()) if int(given["alpha"]) else 0
        seen["mixed steps"] += int((played.column("phase") == 0).sum())
    print(TRACES, dict(seen))
    assert seen["preemptions"] >= TRACES // 10
    assert seen["steps at alpha"] >= TRACES, "the guard goes to its limit"


@dataclass(slots=True, eq=False)
class Job:
    name: int
    prompt: int
    output: int
    low: int | None
    high: int | None
    done: int = 0  # tokens computed of what is to prefill
    generated: int = 0

    @property
    def left(self) -> int:
        return self.prompt + self.generated - self.done

    @property
    def waiting(self) -> WaitingRequest:
        return WaitingRequest(self.name, self.prompt, self.generated, self.low, self.high)


@dataclass(slots=True)
class Toy:
    """An engine without time or blocks in which anyone may be aborted or preempted at any moment."""

    policy: Policy
    slots: int
    token_budget: int
    kv: bool
    block_size: int = 16
    total_blocks: int = 1
    free_blocks: int = 1
    watermark_blocks: int = 0
    waiting: int = 0
    prefilling: int = 0
    decoding: int = 0
    running: list[Job] = field(default_factory=list)
    queued: dict[int, Job] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)

    @property
    def order(self) -> Order:
        order = self.policy.order
        assert order is not None
        return order

    def waiting_tokens(self) -> Iterator[int]:
        return (request.num_prompt_tokens + request.num_output_tokens for request in self.order)

    def decoders(self) -> list[Job]:
        return [job for job in self.running if not job.left]

    def num_output_tokens(self) -> list[int]:
        return sorted((job.generated for job in self.decoders()), reverse=True)

    def footprints(self) -> list[int]:
        return sorted((job.prompt + job.generated for job in self.decoders()), reverse=True)

    def partial_prefills(self) -> list[PartialPrefill]:
        return [PartialPrefill(job.left, job.prompt, job.generated) for job in self.running if job.left]

    def arrive(self, job: Job) -> None:
        self.queued[job.name] = job
        self.order.push(job.waiting)

    def abort(self, name: int) -> None:
        if self.queued.pop(name, None) is not None:
            self.order.remove(name)
        else:
            self.running = [job for job in self.running if job.name != name]
        self.ended.append(name)

    def preempt(self, job: Job) -> None:
        self.running.remove(job)
        job.done = 0
        self.queued[job.name] = job
        self.order.push_front(job.waiting)

    def step(self) -> None:
        self.waiting, self.decoding = len(self.queued), len(self.decoders())
        self.prefilling = len(self.running) - self.decoding
        assert len(self.order) == len(self.queued)
        assert {one.request_id for one in self.order} == set(self.queued)
        view: View = self
        plan = self.policy.plan(view)
        assert plan.phase is not Phase.DECODE or not self.prefilling
        decoders = [] if plan.phase is Phase.PREFILL else self.decoders()
        budget, computing = self.token_budget - len(decoders), list[Job]()
        for job in self.running:
            if job.left and budget:
                budget -= self.compute(job, budget)
                computing.append(job)
        while plan.phase is not Phase.DECODE and budget and len(self.running) < self.slots:
            named = self.order.peek(view)
            if named is None:
                break
            assert self.order.peek(view) == named, "asked again, it says the same"
            assert self.order.pop(view) == named
            assert isinstance(named.request_id, int)
            job = self.queued.pop(named.request_id)
            self.running.append(job)
            budget -= self.compute(job, budget)
            computing.append(job)
        assert decoders or computing or not self.running, "nobody advances"
        assert self.running or not self.queued, "who waits with nothing running starts"
        producing = decoders + [job for job in computing if not job.left]
        for job in producing:
            job.generated += 1
            job.done += 1
        counts = [job.generated + (job.prompt if self.kv else 0) for job in producing] or [0]
        self.gaps.append(max(counts) - min(counts))
        self.policy.on_steps(1, len(decoders), len(self.running), len(producing) - len(decoders))
        self.ended += [job.name for job in producing if job.generated == job.output]
        self.running = [job for job in self.running if job.generated < job.output]

    def compute(self, job: Job, budget: int) -> int:
        tokens = min(job.left, budget)
        job.done += tokens
        return tokens


policies = st.builds(
    lambda alpha, kv, plan, wait, exclusive: GuardOptions(alpha, kv, plan, wait, False, exclusive),
    st.sampled_from([0, 1, 2, 5, 20, 100]),
    st.booleans(),
    st.sampled_from([0.0, 0.5, 0.7, 1.0]),
    st.sampled_from([None, 1, 10, 60]),
    st.booleans(),
)


def toy_run(rng: random.Random, toy: Toy, jobs: int) -> None:
    """Arrivals, aborts and preemptions at random, then none until all have ended."""
    names = iter(range(jobs))
    longest = rng.choice((3, 30, 120))
    for name in names:
        output = rng.randint(1, longest)
        guess = max(1, round(output * rng.lognormvariate(0, 0.5)))
        low, high = rng.choice(((None, None), (output, output), (guess, guess), (max(1, guess // 2), 2 * guess)))
        toy.arrive(Job(name, rng.randint(1, 40), output, low, high))
        for _ in range(rng.choice((0, 0, 1, 5))):
            toy.step()
            if rng.random() < 0.1 and (toy.queued or toy.running):
                toy.abort(rng.choice([*toy.queued, *(job.name for job in toy.running)]))
            # The engine's victim is the newest; a half computed prompt always is.
            while rng.random() < 0.1 and toy.running:
                toy.preempt(toy.running[-1])
    steps = 0
    while toy.queued or toy.running:
        toy.step()
        steps += 1
        assert steps < 100_000, "it never ends"
    assert sorted(toy.ended) == list(range(jobs))


@given(policies, st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 40))
def test_with_aborts_and_preemptions_at_any_moment_gaps_stay_and_nobody_is_lost(
    options: GuardOptions, seed: int, slots: int, more: int
) -> None:
    toy = Toy(Isjl(options), slots, slots + more, options.kv)
    toy_run(random.Random(seed), toy, 60)
    assert max(toy.gaps) <= options.alpha


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 40))
def test_ranked_loses_nobody_either(seed: int, slots: int, more: int) -> None:
    toy_run(random.Random(seed), Toy(Mixed(Ranked(expected)), slots, slots + more, False), 60)


@pytest.mark.parametrize("kv", [False, True])
def test_a_short_starts_in_time_though_longer_ones_keep_coming(kv: bool) -> None:
    """One short among an endless supply of long ones: `max_wait` and a batch bound its wait, nothing else does."""
    waits = {}
    for max_wait in (100, None):
        toy = Toy(Isjl(GuardOptions(20, kv, 0.7, max_wait)), 2, 64, kv)
        for name in range(400):
            prompt, output = (30, 1) if name == 5 else (5, 50)
            toy.arrive(Job(name, prompt, output, output, output))
            if name > 5 and 5 not in toy.ended:
                toy.step()
        waits[max_wait] = len(toy.gaps)
    assert 100 < waits[100] < 100 + 2 * 60
    assert waits[None] == 394


def test_longest_first_runs_batch_by_batch() -> None:
    """All at once, lengths known, room for every prompt: the makespan of LJF, the sum of each batch's longest."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 200, 50).tolist()
    toy = Toy(Isjl(GuardOptions(0, plan=0.0, exclusive=True)), 8, 10_000, False)
    for name, output in enumerate(lengths):
        toy.arrive(Job(name, 3, output, output, output))
    while toy.queued or toy.running:
        toy.step()
    # The first token comes with the prefill, in a step of its own.
    assert len(toy.gaps) == sum(sorted(lengths, reverse=True)[::8])
    assert max(toy.gaps) == 0


def test_with_exact_lengths_a_plan_beats_none_and_both_beat_longest_first() -> None:
    """As measured for the token-step model: the more of α is planned, the sooner all are done."""
    rng = np.random.default_rng(0)
    lengths = np.clip(np.rint(90 * np.exp(1.1 * rng.standard_normal(240))), 1, 905).astype(int).tolist()
    steps = {}
    for name, options in {
        "ljf": GuardOptions(0, plan=0.0, exclusive=True),
        **{f"plan {plan}": GuardOptions(100, plan=plan) for plan in (0.0, 0.6, 1.0)},
    }.items():
        toy = Toy(Isjl(options), 16, 10_000, False)
        for row, output in enumerate(lengths):
            toy.arrive(Job(row, 1, output, output, output))
        while toy.queued or toy.running:
            toy.step()
        steps[name] = len(toy.gaps)
        assert max(toy.gaps) <= options.alpha
    print(steps)
    assert steps["plan 1.0"] < steps["plan 0.6"] < steps["plan 0.0"] < steps["ljf"]
