"""The batch loop a second time, slow and plain, from the specification alone: what the fast one must equal.

One object a request, one list of what runs and one of what waits, every block counted, every step taken, the
policy asked before each. The rules are stock vLLM's as ../shared/spec/vllm-policies.md states them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from harness.profiles.cost import CostModel
from harness.simulate.limits import EngineLimits
from policies.core import PartialPrefill, Phase, Policy, PolicyState, StepPlan, WaitingRequest
from workloads.core.stream import Stream
from workloads.lengths.hints import Hints

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
    table: list[int] = field(default_factory=list)  # its blocks by number, where there is a prefix cache
    found: int = 0  # tokens that the prefix cache had when it was first admitted
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
    held_back: int = 0  # times that an order named nobody though some waited
    hits: int = 0  # admissions that found something in the prefix cache
    hit_tokens: int = 0
    own_hits: int = 0  # of these, preempted requests
    whole_hits: int = 0  # of these, all full blocks but the one that must be computed again
    evictions: int = 0
    duplicates: int = 0  # blocks named as another is already


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
        # The tokens of each prompt and answer, where there is a prefix cache; then blocks have numbers: those that
        # are free in the order in which they are taken, how many hold each, and a name for all up to its end.
        self.contents = None if contents is None else [self.named(tokens, limits.block_size) for tokens in contents]
        self.free = list(range(1, limits.kv_blocks))
        self.users = [0] * limits.kv_blocks
        self.names: dict[int, int] = {}  # in the order in which they were named
        self.admissions: list[tuple[int, int]] = []  # row and tokens found
        self.hints = hints
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
        # Of sessions: what is to come, by session in order of turns, and when the next of each is due.
        self.turns: dict[int, list[int]] = {}
        self.turn_due: dict[int, int] = {}
        if stream.think_ns is not None:
            trace = stream.trace
            assert trace.session is not None
            assert trace.turn is not None
            for row in sorted(range(len(trace)), key=lambda row: (int(trace.turn[row]), row)):  # type: ignore[index] # asserted above
                self.turns.setdefault(int(trace.session[row]), []).append(row)
        self.begun: set[int] = set()
        self.running: list[Request] = []
        self.queue: list[Request] = []  # who waits: in order, or as they came where the policy has an order
        self.ended: list[Request] = []
        self.steps: list[StepRow] = []
        self.states: list[PolicyState | None] = []
        self.plans: list[StepPlan] = []
        self.counts = Counts()

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
            self.send()
            if self.running or self.queue:
                self.step()
                continue
            due = self.next_due()
            if due is None:
                return self
            self.now = due

    def next_due(self) -> int | None:
        if self.stream.think_ns is not None:
            due = min((due for due, _, _ in self.coming()), default=None)
            return None if due is None or (self.last_send is not None and due > self.last_send) else due
        if self.sent == len(self.stream.trace) or self.stream.due_ns is None:
            return None
        due = int(self.stream.due_ns[self.sent])
        return None if self.last_send is not None and due > self.last_send else due

    def coming(self) -> list[tuple[int, bool, int]]:
        """When the clock brings the next turn of each conversation, whether that is its first, and its row."""
        found = [(due, False, self.turns[session][0]) for session, due in self.turn_due.items()]
        if self.stream.due_ns is not None:
            fresh = [rows[0] for session, rows in self.turns.items() if rows and session not in self.begun]
            found += [(int(self.stream.due_ns[row]), True, row) for row in fresh]
        return found

    def send_turns(self) -> None:
        trace = self.stream.trace
        assert trace.session is not None
        while True:
            coming = min(self.coming(), default=None)
            if coming is not None and coming[0] <= self.now:
                due, _, row = coming
            elif self.stream.concurrency is not None:
                fresh = [rows[0] for session, rows in self.turns.items() if rows and session not in self.begun]
                under_way = sum(bool(self.turns[session]) for session in self.begun) + sum(
                    not self.turns[int(trace.session[request.row])] for request in (*self.running, *self.queue)
                )
                if under_way >= self.stream.concurrency or not fresh:
                    return
                due, row = self.now, min(fresh)
            else:
                return
            if self.last_send is not None and due > self.last_send:
                return
            session = int(trace.session[row])
            self.begun.add(session)
            self.turns[session].remove(row)
            self.turn_due.pop(session, None)
            self.sent += 1
            self.join(row, due)

    def follow(self, row: int, end: int) -> None:
        """The answer to a row has ended: the next turn of its conversation is due after the time to think."""
        if self.stream.think_ns is not None:
            assert self.stream.trace.session is not None
            session = int(self.stream.trace.session[row])
            if self.turns[session]:
                self.turn_due[session] = end + self.stream.think_ns

    def send(self) -> None:
        if self.stream.think_ns is not None:
            self.send_turns()
            return
        trace, due_ns, levels = self.stream.trace, self.stream.due_ns, self.stream.levels
        while self.sent < len(trace):
            if due_ns is None:
                in_flight = len(self.running) + len(self.queue)
                concurrency = next(level for first, level in reversed(levels) if first <= self.sent)
                begins = self.sent in [first for first, _ in levels[1:]]
                if in_flight >= concurrency or (begins and self.stream.drain and in_flight):
                    return
                due = self.now
            else:
                due = int(due_ns[self.sent])
            if due > self.now or (self.last_send is not None and due > self.last_send):
                return
            self.sent += 1
            self.join(self.sent - 1, due)

    def join(self, row: int, due: int) -> None:
        trace = self.stream.trace
        prompt, asked = int(trace.prompt_tokens[row]), int(trace.output_tokens[row])
        request = Request(row, prompt, asked, due, prompt)
        if prompt + asked > min(self.limits.max_model_len, self.total_blocks * self.block_size):
            request.finish, request.done = TOO_LONG, due
            self.counts.rejected += 1
            self.ended.append(request)
            self.follow(row, due)
        else:
            self.queue.append(request)
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
        self.let_go(request)
        self.ended.append(request)
        self.policy.on_finish(request.output)
        self.follow(request.row, request.done)

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
            request = self.first_waiting()
            if request is None:
                break
            found = self.find(request)
            need = self.blocks_for(request.context) - sum(self.users[block] > 0 for block in found)
            if need > self.unheld_blocks():
                break
            if self.running and need + self.watermark_blocks > self.unheld_blocks():
                self.counts.watermark_held += 1
                break
            if self.policy.order is not None:
                assert self.policy.order.pop(self).request_id == request.row
            self.queue.remove(request)
            self.running.append(request)
            request.to_prefill = request.context
            self.hold(request, found)
            tokens = min(request.to_prefill - request.computed, budget)
            self.counts.chunked += tokens < request.to_prefill - request.computed
            assert self.grow(request, tokens)
            if not request.seen:
                request.seen = True
                request.found = request.computed
                self.policy.on_admit(request.prompt)
            admitted.append((request, tokens))
            budget -= tokens
        return admitted

    # The prefix cache.

    known: ClassVar[dict[tuple[int, ...], int]] = {}

    @classmethod
    def named(cls, tokens: list[int], block_size: int) -> list[int]:
        """A number for each full block: another wherever it or anything before it is another."""
        names, before = [], -1
        for end in range(block_size, len(tokens) + 1, block_size):
            before = cls.known.setdefault((before, *tokens[end - block_size : end]), len(cls.known))
            names.append(before)
        return names

    def find(self, request: Request) -> list[int]:
        """The oldest blocks that hold the request's beginning, whole ones and not its last token."""
        found: list[int] = []
        if self.contents is not None:
            for wanted in self.contents[request.row][: (request.context - 1) // self.block_size]:
                same = [block for block, name in self.names.items() if name == wanted]
                if not same:
                    break
                found.append(same[0])
        return found

    def hold(self, request: Request, found: list[int]) -> None:
        for block in found:
            if not self.users[block]:
                self.free.remove(block)
            self.users[block] += 1
        request.table = list(found)
        request.blocks = len(found)
        request.computed = len(found) * self.block_size
        self.admissions.append((request.row, request.computed))
        self.counts.hits += bool(found)
        self.counts.hit_tokens += request.computed
        self.counts.own_hits += bool(found) and request.seen
        self.counts.whole_hits += bool(found) and request.context - request.computed <= self.block_size

    def take(self, request: Request, more: int, computed: int) -> None:
        """New blocks for the request, of which so many tokens are then computed."""
        if self.contents is None:
            return
        for _ in range(more):
            block = self.free.pop(0)
            self.counts.evictions += self.names.pop(block, None) is not None
            self.users[block] = 1
            request.table.append(block)
        for place in range(computed // self.block_size):
            if request.table[place] not in self.names:
                name = self.contents[request.row][place]
                self.counts.duplicates += name in self.names.values()
                self.names[request.table[place]] = name

    def let_go(self, request: Request) -> None:
        freed = []
        for block in reversed(request.table):
            self.users[block] -= 1
            if not self.users[block]:
                freed.append(block)
        self.free[:0] = [block for block in freed if block not in self.names]
        self.free += [block for block in freed if block in self.names]
        request.table = []

    def unheld_blocks(self) -> int:
        if self.contents is not None:
            return len(self.free)
        return self.total_blocks - sum(request.blocks for request in self.running)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def grow(self, request: Request, tokens: int) -> bool:
        """Gives the request the blocks for this many more tokens; False where there are not enough."""
        more = self.blocks_for(request.computed + tokens) - request.blocks
        if more > self.unheld_blocks():
            return False
        request.blocks += more
        self.take(request, more, request.computed + tokens)
        return True

    def preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.let_go(request)
        self.queue.insert(0, request)
        request.computed = request.blocks = 0
        request.preemptions += 1
        if self.policy.order is not None:
            self.policy.order.push_front(self.as_waiting(request))
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
        kv_tokens = self.block_size * (self.total_blocks - self.unheld_blocks())
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
