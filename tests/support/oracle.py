"""The batch loop a second time, slow and plain, from the specification alone: what the fast one must equal.

One object a request, one list of what runs and one of what waits, every block counted, every step taken, the
policy asked before each. The rules are stock vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from harness.profiles.cost import CostModel
from harness.simulate.limits import EngineLimits
from policies.core import UNLIMITED, PartialPrefill, Phase, Policy, PolicyState, StepPlan, WaitingRequest
from policies.timed import hearer_of
from tests.support.oracle_blocks import OracleBlocks
from tests.support.oracle_clients import Clients
from tests.support.oracle_rows import DECODE, MIXED, PREFILL, TOO_LONG, Counts, Request, StepRow
from workloads.core.stream import Stream
from workloads.lengths.hints import Hints


class Oracle:
    """One run; it is the policy's View."""

    def __init__(
        self,
        stream: Stream,
        policy: Policy,
        cost: CostModel,
        limits: EngineLimits,
        max_duration_s: float | None = None,
        hints: Hints | None = None,
        contents: list[list[int]] | None = None,
    ) -> None:
        self.counts = Counts()
        self.blocks = OracleBlocks(limits, contents, self.counts)
        self.hints = hints
        self.stream = stream
        self.policy = policy
        self.cost = cost
        self.limits = limits
        self.clients = Clients(stream, None if max_duration_s is None else round(max_duration_s * 1e9))
        self.slots = limits.slots
        self.token_budget = limits.token_budget
        self.block_size = limits.block_size
        self.total_blocks = self.blocks.total
        self.watermark_blocks = int(limits.watermark * limits.kv_blocks)
        self.free_blocks = self.waiting = self.prefilling = self.decoding = 0  # counted anew before each ask
        self.now = 0
        self.running: list[Request] = []
        self.queue: list[Request] = []  # who waits: in order, or as they came where the policy has an order
        self.ended: list[Request] = []
        self.steps: list[StepRow] = []
        self.states: list[PolicyState | None] = []
        self.plans: list[StepPlan] = []
        self.plan = StepPlan(Phase.MIXED, 0)  # the one in force
        self.state: PolicyState | None = None  # what the policy held to be true when it made that
        self.again_at = 0  # the step before which it has run out
        self.changed = True  # something happened since it was made
        # Of each step since then: prefill tokens and work, decodes, Σ of their contexts, preempted, duration (ns).
        self.times: list[tuple[int, float, int, int, int, int]] = []

    # What a policy may look at besides the counts.

    def waiting_tokens(self) -> Iterator[int]:
        if self.policy.order is not None:
            return iter([request.num_prompt_tokens + request.num_output_tokens for request in self.policy.order])
        return iter([request.context for request in self.queue])

    def num_output_tokens(self) -> list[int]:
        return sorted((request.output for request in self.running if not request.prefilling), reverse=True)

    def footprints(self) -> list[int]:
        held = (request for request in self.running if not request.prefilling)
        return sorted((request.prompt + request.output for request in held), reverse=True)

    def partial_prefills(self) -> list[PartialPrefill]:
        held = (request for request in self.running if request.prefilling)
        return [PartialPrefill(request.context - request.computed, request.prompt, request.output) for request in held]

    # The run.

    def run(self) -> Oracle:
        while True:
            for row, due_ns in self.clients.due(self.now, self.in_flight):
                self.join(row, due_ns)
            if self.running or self.queue:
                self.step()
                continue
            due = self.clients.next_due()
            if due is None:
                return self
            self.now = due

    @property
    def sent(self) -> int:
        """Requests that the clients have sent."""
        return self.clients.sent

    def in_flight(self) -> list[int]:
        """The rows of all that wait or run."""
        return [request.row for request in (*self.running, *self.queue)]

    def join(self, row: int, due: int) -> None:
        trace = self.stream.trace
        prompt, asked = int(trace.prompt_tokens[row]), int(trace.output_tokens[row])
        request = Request(row, prompt, asked, due, prompt)
        if prompt + asked > min(self.limits.max_model_len, self.total_blocks * self.block_size):
            request.finish, request.done = TOO_LONG, due
            self.counts.rejected += 1
            self.ended.append(request)
            self.clients.follow(row, due)
        else:
            self.queue.append(request)
            self.changed = True
            if self.policy.order is not None:
                self.policy.order.push(self.as_waiting(request))

    def as_waiting(self, request: Request) -> WaitingRequest:
        if self.hints is None:
            return WaitingRequest(request.row, request.prompt, request.output)
        low, high = int(self.hints.low[request.row]), int(self.hints.high[request.row])
        return WaitingRequest(request.row, request.prompt, request.output, low, high)

    def first_waiting(self) -> Request | None:
        """Who is to start next; None where the policy's order names nobody."""
        if self.policy.order is None:
            return self.queue[0]
        named = self.policy.order.peek(self)
        if named is None:
            self.counts.held_back += 1
            return None
        request = next(one for one in self.queue if one.row == named.request_id)
        assert named == self.as_waiting(request)
        return request

    def step(self) -> None:
        self.waiting = len(self.queue)
        self.prefilling = sum(request.prefilling for request in self.running)
        self.decoding = len(self.running) - self.prefilling
        self.free_blocks = self.blocks.unheld
        # A policy is asked when its plan has run out, when something changed, and where its order may let one start.
        if self.changed or len(self.steps) >= self.again_at or (self.policy.order is not None and self.queue):
            self.tell_of_time()
            self.plan, self.changed = self.policy.plan(self), False
            self.again_at = len(self.steps) + self.plan.steps
            self.state = self.policy.state()
        plan = self.plan
        self.plans.append(plan)
        self.states.append(self.state)

        if plan.phase is Phase.MIXED:
            scheduled, preempted = self.continue_running(list(self.running), plan.tokens)
            if not preempted:
                scheduled += self.admit(plan.admit, scheduled, plan.tokens)
        elif plan.phase is Phase.PREFILL:
            scheduled, preempted = self.continue_running([r for r in self.running if r.prefilling], plan.tokens)
            if not preempted:
                scheduled += self.admit(plan.admit, scheduled, plan.tokens)
            if not scheduled:
                self.counts.empty_prefills += 1
                self.counts.starved_prefills += preempted
                scheduled, more = self.continue_running(list(self.running))
                preempted += more
        else:
            scheduled, preempted = self.continue_running([r for r in self.running if not r.prefilling])
        if scheduled:
            self.execute(scheduled, preempted)
        else:
            self.on_nothing_to_do()

    def tell_of_time(self) -> None:
        """What the steps since the last plan took; only steps of as many decodes and nothing else count as equal."""
        hear = hearer_of(self.policy)
        if hear is None:
            return
        for decodes_alone, group in groupby(self.times, lambda step: step[2] if not step[0] and not step[4] else 0):
            for told in [list(group)] if decodes_alone else [[step] for step in group]:
                prefill_tokens, prefill_work, decodes, _, preempted, _ = told[0]
                context = sum(step[3] for step in told) / len(told)
                seconds = sum(step[5] for step in told) / (1e9 * len(told))
                hear(len(told), prefill_tokens, prefill_work, decodes, context, seconds, preempted)
        self.times.clear()

    # What asynchronous scheduling does otherwise (late_oracle.py).

    def on_nothing_to_do(self) -> None:
        raise AssertionError("a step without work: the engine would spin")

    def continues(self, request: Request) -> bool:
        return True

    def on_last_token(self, request: Request) -> None:
        self.end(request)

    def end(self, request: Request) -> None:
        request.done = request.token_times[-1]
        (self.running if request in self.running else self.queue).remove(request)
        self.blocks.let_go(request)
        self.ended.append(request)
        self.changed = True
        self.policy.on_finish(request.output)
        self.clients.follow(request.row, request.done)

    def continue_running(
        self, candidates: list[Request], prompt_tokens: int = UNLIMITED
    ) -> tuple[list[tuple[Request, int]], int]:
        """(request, tokens) in running order, and how many were preempted for them."""
        scheduled: list[tuple[Request, int]] = []
        budget, preempted, place = self.token_budget, 0, 0
        while place < len(candidates) and budget:
            request = candidates[place]
            place += 1
            if not self.continues(request):
                continue
            left = request.to_prefill - request.computed
            tokens = min(left, budget, prompt_tokens) if request.prefilling else 1
            starved = request.prefilling
            while not self.blocks.grow(request, tokens):
                victim = candidates.pop()
                self.preempt(victim)
                preempted += 1
                if victim is request:
                    self.counts.starved_chunks += starved
                    return scheduled, preempted
            scheduled.append((request, tokens))
            budget -= tokens
        return scheduled, preempted

    def admit(
        self, at_most: int, scheduled: list[tuple[Request, int]], prompt_tokens: int
    ) -> list[tuple[Request, int]]:
        admitted: list[tuple[Request, int]] = []
        budget = self.token_budget - sum(tokens for _, tokens in scheduled)
        budget = min(budget, prompt_tokens - sum(tokens for request, tokens in scheduled if request.prefilling))
        while self.queue and budget and len(self.running) < self.slots and len(admitted) < at_most:
            request = self.first_waiting()
            if request is None:
                break
            found = self.blocks.find(request)
            need = self.blocks.needed(request, found)
            if need > self.blocks.unheld:
                break
            if self.running and need + self.watermark_blocks > self.blocks.unheld:
                self.counts.watermark_held += 1
                break
            if self.policy.order is not None:
                assert self.policy.order.pop(self).request_id == request.row
            self.queue.remove(request)
            self.running.append(request)
            request.to_prefill = request.context
            self.blocks.hold(request, found)
            tokens = min(request.to_prefill - request.computed, budget)
            self.counts.chunked += tokens < request.to_prefill - request.computed
            assert self.blocks.grow(request, tokens)
            if not request.seen:
                request.seen = True
                request.found = request.computed
                self.policy.on_admit(request.prompt)
            admitted.append((request, tokens))
            budget -= tokens
        return admitted

    def preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.blocks.let_go(request)
        self.queue.insert(0, request)
        request.computed = 0
        request.preemptions += 1
        self.changed = True
        if self.policy.order is not None:
            self.policy.order.push_front(self.as_waiting(request))
        self.counts.preemptions += 1

    def execute(self, scheduled: list[tuple[Request, int]], preempted: int) -> None:
        prefills = [(request, tokens) for request, tokens in scheduled if request.prefilling]
        decodes = [request for request, _ in scheduled if not request.prefilling]
        prefill_tokens = sum(tokens for _, tokens in prefills)
        prefill_work = sum(tokens * (request.computed + tokens / 2) for request, tokens in prefills)
        context = sum(request.context for request in decodes)
        longest = max((request.context for request in decodes), default=0)
        seconds = self.cost.seconds(prefill_tokens, prefill_work, len(decodes), context, longest)
        duration = round(seconds * 1e9)
        self.times.append((prefill_tokens, prefill_work, len(decodes), context, preempted, duration))
        start, end = self.now, self.now + duration
        kv_tokens = self.block_size * (self.total_blocks - self.blocks.unheld)
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
        self.changed = self.changed or bool(prefills)
        self.now = end
        self.policy.on_steps(1, len(decodes), held, len(producing) - len(decodes))
        for request in producing:
            if request.output == request.asked:
                self.on_last_token(request)
