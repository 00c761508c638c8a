"""The batch loop a second time, slow and plain, from the specification alone: what the fast one must equal.

One object a request, one list of what runs and one of what waits, every block counted, every step taken, the
policy asked before each. The rules are stock vLLM's as ../shared/spec/vllm-policies.md states them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.simulate.batch import EngineLimits
from harness.simulate.cost import CostModel
from policies.core import Partial, Phase, Policy, PolicyState, StepPlan
from workloads.arrivals import Stream

MIXED, PREFILL, DECODE = 0, 1, 2
LENGTH, TOO_LONG = 0, 2


@dataclass(slots=True, eq=False)
class Request:
    """A request and where it stands; `to_prefill` is what its last admission has to compute, tokens."""

    row: int
    prompt: int
    asked: int
    due: int
    to_prefill: int
    computed: int = 0
    blocks: int = 0
    preemptions: int = 0
    done: int = -1
    finish: int = LENGTH
    seen: bool = False  # has held a slot before
    token_times: list[int] = field(default_factory=list)

    @property
    def output(self) -> int:
        return len(self.token_times)

    @property
    def prefilling(self) -> bool:
        return self.computed < self.to_prefill

    @property
    def context(self) -> int:
        """Tokens known: the prompt and what came out so far."""
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step's integers, named as in harness/records.py, ns and tokens."""

    t: int
    duration: int
    phase: int
    prefill_tokens: int
    decode_requests: int
    running: int
    waiting: int
    preempted: int
    kv_tokens: int
    producing: int
    generated_sum: int
    generated_min: int
    generated_max: int
    footprint_sum: int
    footprint_min: int
    footprint_max: int


@dataclass(slots=True)
class Counts:
    """What happened in a run, to show that a test has seen it happen."""

    steps: int = 0
    preemptions: int = 0
    chunked: int = 0  # admissions whose prompt did not fit the step's budget
    rejected: int = 0
    watermark_held: int = 0  # admissions that the watermark alone put off
    starved_chunks: int = 0  # prompts under way that found no block
    empty_prefills: int = 0  # prefill steps that came back empty and decoded instead
    starved_prefills: int = 0  # of these, the ones whose chunk found no block


class Oracle:
    """One run; it is the policy's View."""

    def __init__(
        self,
        stream: Stream,
        policy: Policy,
        cost: CostModel,
        limits: EngineLimits,
        max_duration_s: float | None = None,
    ) -> None:
        self.stream = stream
        self.policy = policy
        self.cost = cost
        self.limits = limits
        self.last_send = None if max_duration_s is None else round(max_duration_s * 1e9)
        self.slots = limits.slots
        self.token_budget = limits.token_budget
        self.block_size = limits.block_size
        self.total_blocks = limits.kv_blocks - 1  # one is the null block
        self.watermark_blocks = int(limits.watermark * limits.kv_blocks)
        self.free_blocks = self.waiting = self.prefilling = self.decoding = 0  # counted anew before each ask
        self.now = 0
        self.sent = 0
        self.running: list[Request] = []
        self.queue: list[Request] = []
        self.ended: list[Request] = []
        self.steps: list[StepRow] = []
        self.states: list[PolicyState | None] = []
        self.plans: list[StepPlan] = []
        self.counts = Counts()

    # What a policy may look at besides the counts.

    def waiting_tokens(self) -> Iterator[int]:
        return iter([request.context for request in self.queue])

    def ages(self) -> list[int]:
        return sorted((request.output for request in self.running if not request.prefilling), reverse=True)

    def footprints(self) -> list[int]:
        held = (request for request in self.running if not request.prefilling)
        return sorted((request.prompt + request.output for request in held), reverse=True)

    def partials(self) -> list[Partial]:
        held = (request for request in self.running if request.prefilling)
        return [Partial(request.context - request.computed, request.prompt, request.output) for request in held]

    # The run.

    def run(self) -> Oracle:
        while True:
            self.send()
            if self.running or self.queue:
                self.step()
                continue
            due = self.next_due()
            if due is None:
                return self
            self.now = due

    def next_due(self) -> int | None:
        if self.sent == len(self.stream.trace) or self.stream.due_ns is None:
            return None
        due = int(self.stream.due_ns[self.sent])
        return None if self.last_send is not None and due > self.last_send else due

    def send(self) -> None:
        trace, due_ns, concurrency = self.stream.trace, self.stream.due_ns, self.stream.concurrency
        while self.sent < len(trace):
            if due_ns is None:
                assert concurrency is not None
                if len(self.running) + len(self.queue) >= concurrency:
                    return
                due = self.now
            else:
                due = int(due_ns[self.sent])
            if due > self.now or (self.last_send is not None and due > self.last_send):
                return
            prompt, asked = int(trace.prompt_tokens[self.sent]), int(trace.output_tokens[self.sent])
            request = Request(self.sent, prompt, asked, due, prompt)
            self.sent += 1
            if prompt + asked > min(self.limits.max_model_len, self.total_blocks * self.block_size):
                request.finish, request.done = TOO_LONG, due
                self.counts.rejected += 1
                self.ended.append(request)
            else:
                self.queue.append(request)

    def step(self) -> None:
        self.waiting = len(self.queue)
        self.prefilling = sum(request.prefilling for request in self.running)
        self.decoding = len(self.running) - self.prefilling
        self.free_blocks = self.unheld_blocks()
        plan = self.policy.plan(self)
        self.plans.append(plan)
        self.states.append(self.policy.state())

        if plan.phase is Phase.MIXED:
            scheduled, preempted = self.continue_running(list(self.running))
            if not preempted:
                scheduled += self.admit(plan.admit, scheduled)
        elif plan.phase is Phase.PREFILL:
            scheduled, preempted = self.continue_running([r for r in self.running if r.prefilling])
            if not preempted:
                scheduled += self.admit(plan.admit, scheduled)
            if not scheduled:
                self.counts.empty_prefills += 1
                self.counts.starved_prefills += preempted
                scheduled, more = self.continue_running(list(self.running))
                preempted += more
        else:
            assert not any(request.prefilling for request in self.running), "a decode phase with a prompt half computed"
            scheduled, preempted = self.continue_running(list(self.running))
        if scheduled:
            self.execute(scheduled, preempted)
        else:
            self.on_nothing_to_do()

    # What asynchronous scheduling does otherwise (tests/conformance/late.py).

    def on_nothing_to_do(self) -> None:
        raise AssertionError("a step without work: the engine would spin")

    def continues(self, request: Request) -> bool:
        return True

    def on_last_token(self, request: Request) -> None:
        self.end(request)

    def end(self, request: Request) -> None:
        request.done = request.token_times[-1]
        (self.running if request in self.running else self.queue).remove(request)
        self.ended.append(request)
        self.policy.on_finish(request.output)

    def continue_running(self, candidates: list[Request]) -> tuple[list[tuple[Request, int]], int]:
        """(request, tokens) in running order, and how many were preempted for them."""
        scheduled: list[tuple[Request, int]] = []
        budget, preempted, place = self.token_budget, 0, 0
        while place < len(candidates) and budget:
            request = candidates[place]
            place += 1
            if not self.continues(request):
                continue
            tokens = min(request.to_prefill - request.computed, budget) if request.prefilling else 1
            starved = request.prefilling
            while not self.grow(request, tokens):
                victim = candidates.pop()
                self.preempt(victim)
                preempted += 1
                if victim is request:
                    self.counts.starved_chunks += starved
                    return scheduled, preempted
            scheduled.append((request, tokens))
            budget -= tokens
        return scheduled, preempted

    def admit(self, at_most: int, scheduled: list[tuple[Request, int]]) -> list[tuple[Request, int]]:
        admitted: list[tuple[Request, int]] = []
        budget = self.token_budget - sum(tokens for _, tokens in scheduled)
        while self.queue and budget and len(self.running) < self.slots and len(admitted) < at_most:
            request = self.queue[0]
            need = self.blocks_for(request.context)
            if need > self.unheld_blocks():
                break
            if self.running and need + self.watermark_blocks > self.unheld_blocks():
                self.counts.watermark_held += 1
                break
            del self.queue[0]
            self.running.append(request)
            request.to_prefill = request.context
            tokens = min(request.to_prefill, budget)
            self.counts.chunked += tokens < request.to_prefill
            assert self.grow(request, tokens)
            if not request.seen:
                request.seen = True
                self.policy.on_admit(request.prompt)
            admitted.append((request, tokens))
            budget -= tokens
        return admitted

    def unheld_blocks(self) -> int:
        return self.total_blocks - sum(request.blocks for request in self.running)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def grow(self, request: Request, tokens: int) -> bool:
        """Gives the request the blocks for this many more tokens; False where there are not enough."""
        more = self.blocks_for(request.computed + tokens) - request.blocks
        if more > self.unheld_blocks():
            return False
        request.blocks += more
        return True

    def preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.queue.insert(0, request)
        request.computed = request.blocks = 0
        request.preemptions += 1
        self.counts.preemptions += 1

    def execute(self, scheduled: list[tuple[Request, int]], preempted: int) -> None:
        prefills = [(request, tokens) for request, tokens in scheduled if request.prefilling]
        decodes = [request for request, _ in scheduled if not request.prefilling]
        prefill_tokens = sum(tokens for _, tokens in prefills)
        seconds = self.cost.seconds(
            prefill_tokens,
            sum(tokens * (request.computed + tokens / 2) for request, tokens in prefills),
            len(decodes),
            sum(request.context for request in decodes),
            max((request.context for request in decodes), default=0),
        )
        duration = round(seconds * 1e9)
        start, end = self.now, self.now + duration
        kv_tokens = self.block_size * sum(request.blocks for request in self.running)
        held = len(self.running)
        for request, tokens in scheduled:
            request.computed += tokens
        producing = [request for request, _ in scheduled if not request.prefilling]
        for request in producing:
            request.token_times.append(end)
        generated = [request.output for request in producing] or [0]
        footprint = [request.prompt + request.output for request in producing] or [0]
        self.steps.append(
            StepRow(
                start,
                duration,
                MIXED if prefills and decodes else PREFILL if prefills else DECODE,
                prefill_tokens,
                len(decodes),
                held,
                len(self.queue),
                preempted,
                kv_tokens,
                len(producing),
                sum(generated),
                min(generated),
                max(generated),
                sum(footprint),
                min(footprint),
                max(footprint),
            )
        )
        self.counts.steps += 1
        self.now = end
        self.policy.on_steps(1, len(decodes), held, len(producing) - len(decodes))
        for request in producing:
            if request.output == request.asked:
                self.on_last_token(request)
