"""Iteration-level batching in virtual time: slots, token budget, chunked prefill, KV blocks, preemption.

The rules are stock vLLM's (spec: vllm-policies, "what agreed on every step"): running requests first and in
their order, one token each while decoding; then, unless the step preempted, waiting ones first come first
served or in the policy's order, the last of them possibly only a chunk; a request that finds no block preempts
the newest, which goes back to the queue's front with nothing computed; one block of the pool is vLLM's null block.

All decoding requests advance together, so one clock of decode steps serves them all: a request finishes at a
clock known when it starts to decode, and needs its next KV block at every sixteenth tick. That makes a step
cost what changes in it, not what runs in it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.simulate.conversations import NEVER, Conversations
from harness.simulate.cost import CostModel
from harness.simulate.prefix_cache import PrefixCache
from policies.core import UNLIMITED, Partial, Phase, Policy, PolicyState, StepPlan, Waiting
from workloads.arrivals import Stream
from workloads.hints import Hints

FINISH_LENGTH = 0
FINISH_TOO_LONG = 2
REQUEST_FIELDS = ("row", "due", "sent", "first", "last", "done", "output_tokens", "preemptions", "finish")
STEP_FIELDS = (
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
# An enum's members cost a look-up each time.
MIXED, PREFILL, DECODE = Phase
# Below this many steps the numpy calls of a leap cost more than taking the steps.
SHORTEST_LEAP = 8


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine may use: N slots, B tokens a step, KV blocks (the null block included), the longest request."""

    slots: int
    token_budget: int
    kv_blocks: int
    block_size: int = 16
    max_model_len: int = 40960
    watermark: float = 0.0


@dataclass(slots=True)
class Chunk:
    """Rows since the last one, integers in nanoseconds and tokens, and the gaps of requests that were preempted."""

    requests: npt.NDArray[np.int64]  # (rows, len(REQUEST_FIELDS))
    steps: npt.NDArray[np.int64]  # (rows, len(STEP_FIELDS))
    gaps: dict[int, npt.NDArray[np.int64]]  # stream row -> gaps between its tokens
    states: list[PolicyState]  # all so far; a step's `state` is an index, -1 where the policy has none
    now_ns: int
    finished: int
    found: list[int | None] | None = (
        None  # prompt tokens of each request row that the prefix cache had, where there is one
    )


class BatchLoop:
    """One engine replaying one stream under one policy; the policy looks at it as its View."""

    def __init__(
        self,
        stream: Stream,
        policy: Policy,
        cost: CostModel,
        limits: EngineLimits,
        leap: bool = True,
        max_duration_s: float | None = None,
        hints: Hints | None = None,
        cache: PrefixCache | None = None,
    ) -> None:
        self.slots = limits.slots
        self.token_budget = limits.token_budget
        self.block_size = limits.block_size
        self.total_blocks = self.free_blocks = limits.kv_blocks - 1
        self.watermark_blocks = int(limits.watermark * limits.kv_blocks)
        self.waiting = self.prefilling = self.decoding = 0
        self.preemptions = 0
        self._longest = min(limits.max_model_len, self.total_blocks * limits.block_size)
        self._policy = policy
        self._cost = cost
        self._cache = cache
        # Which blocks are taken, and when, decides what the cache still holds: every step is taken.
        self._leap = leap and cache is None
        self._prompt: list[int] = stream.trace.prompt_tokens.tolist()
        self._output: list[int] = stream.trace.output_tokens.tolist()
        n = len(self._prompt)
        self._n = n
        self._closed = stream.due_ns is None
        self._due: list[int] = [0] * n if stream.due_ns is None else stream.due_ns.tolist()
        self._concurrency = 0
        self._levels = deque(stream.levels)  # of a closed loop: phases to come, by first row
        self._drain = stream.drain
        self._next = 0  # requests of the stream that have arrived
        self._last_send = NEVER if max_duration_s is None else round(max_duration_s * 1e9)
        self._talks = None if stream.think_ns is None else Conversations(stream, self._last_send)
        self._first: list[int] = [-1] * n
        self._birth: list[int] = [0] * n  # clock at which a decoding request would have had no token yet
        self._queue: deque[int] = deque()  # all that wait, where the policy has no order
        self._order = policy.order
        self._line: Sized = self._queue if self._order is None else self._order
        self._low: list[int] | None = None if hints is None else hints.low.tolist()
        self._high: list[int] | None = None if hints is None else hints.high.tolist()
        self._running: dict[int, None] = {}  # in order of admission
        self._partial = -1  # the one request whose prompt is only partly computed
        self._partial_done = 0
        self._now = 0
        self._clock = 0  # steps with decodes so far
        self._clock_ends = array("q", [0])
        self._ends_at: dict[int, list[int]] = {}  # clock -> requests that then have all their tokens
        # Decoding requests, in order of admission, that need a block when the clock has this residue.
        self._needs_at: list[dict[int, None]] = [{} for _ in range(limits.block_size)]
        # Sorted, one entry a decoding request: birth, and birth − prompt (clock minus it is the KV footprint).
        self._births: list[int] = []
        self._shifts: list[int] = []
        self._births_sum = self._shifts_sum = 0
        self._resumed: dict[int, int] = {}  # request -> tokens it had when it lost its slot
        self._segment: dict[int, tuple[int, int]] = {}  # of resumed requests: time and clock of the latest resumption
        # Of preempted requests, each spell of decoding: when its first token came, its first and last clock.
        self._spells: dict[int, list[tuple[int, int, int]]] = {}
        self._preempted_of: dict[int, int] = {}
        self._gaps: dict[int, npt.NDArray[np.int64]] = {}
        self._rows = array("q")
        self._steps = array("q")
        self._states: list[PolicyState] = []
        self._state: PolicyState | None = None
        self._state_id = -1
        self.finished = 0
        self.step_count = 0
        self.whole = False  # every request sent has ended

    @property
    def sent(self) -> int:
        """Requests of the stream that have arrived."""
        return self._next if self._talks is None else self._talks.sent

    # What a policy may read besides the counts.

    def waiting_tokens(self) -> Iterator[int]:
        """Tokens to prefill of each waiting request, in order."""
        if self._order is not None:
            return (one.prompt_tokens + one.generated for one in self._order)
        if not self._resumed:
            return map(self._prompt.__getitem__, self._queue)
        return (self._prompt[r] + self._resumed.get(r, 0) for r in self._queue)

    def ages(self) -> list[int]:
        """Output tokens so far of each decoding request, descending."""
        clock = self._clock
        return [clock - birth for birth in self._births]

    def footprints(self) -> list[int]:
        """Prompt plus output tokens so far of each decoding request, descending."""
        clock = self._clock
        return [clock - shift for shift in self._shifts]

    def partials(self) -> list[Partial]:
        """The one request whose prompt is only partly computed, if there is one."""
        request = self._partial
        if request < 0:
            return []
        prompt, had = self._prompt[request], self._resumed.get(request, 0)
        return [Partial(prompt + had - self._partial_done, prompt, had)]

    # The loop.

    def run(self, sink: Callable[[Chunk], bool], every: int = 1024) -> bool:
        """Replays the stream; hands rows to `sink` about every `every` steps.

        Returns True when every request sent has ended, False when `sink` said stop (it returned False).
        """
        flushed = 0
        changed = True
        plan = StepPlan(MIXED, UNLIMITED)
        policy = self._policy
        ends_at = self._ends_at
        while True:
            if self._arrive():
                changed = True
            if not self._running and not self._line:
                due = self._next_due()
                if due == NEVER:
                    break
                self._now = max(self._now, due)
                continue
            # An order may let someone start as time goes by: it is asked before each step in which anyone waits.
            if changed or (self._order is not None and self._line):
                plan = policy.plan(self)
                state = policy.state()
                if state is not self._state:
                    self._state = state
                    self._state_id = -1
                    if state is not None:
                        self._state_id = len(self._states)
                        self._states.append(state)
            # Where a request ends with the very next step there is nothing to leap over.
            leapt = self._clock + 1 not in ends_at and self._leap_ahead(plan)
            changed = not leapt and self._step(plan)
            if self.step_count - flushed >= every:
                flushed = self.step_count
                if not sink(self.drain()):
                    return False
        sink(self.drain())
        self.whole = True
        return True

    def drain(self) -> Chunk:
        """The rows since the last call."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, len(REQUEST_FIELDS))
        steps = np.array(self._steps, dtype=np.int64).reshape(-1, len(STEP_FIELDS))
        gaps, self._gaps = self._gaps, {}
        del self._rows[:], self._steps[:]
        found = None if self._cache is None else list(map(self._cache.found_tokens.get, rows[:, 0].tolist()))
        return Chunk(rows, steps, gaps, self._states, self._now, self.finished, found)

    def _next_due(self) -> int:
        """When the clock brings the next request, ns; NEVER where only the end of another does, or none comes."""
        if self._talks is not None:
            return self._talks.next_due()
        if self._closed or self._next == self._n or self._due[self._next] > self._last_send:
            return NEVER
        return self._due[self._next]

    def _arrive(self) -> bool:
        """Queues what is due by now; says whether anything came."""
        if self._talks is not None:
            return self._arrive_in_turn(self._talks)
        came = False
        while self._next < self._n:
            request = self._next
            if self._closed:
                if self._levels and request == self._levels[0][0]:
                    if self._drain and (self._line or self._running):
                        break
                    self._concurrency = self._levels.popleft()[1]
                if len(self._line) + len(self._running) >= self._concurrency or self._now > self._last_send:
                    break
                self._due[request] = self._now
            elif self._due[request] > min(self._now, self._last_send):
                break
            self._next += 1
            if self._prompt[request] + self._output[request] > self._longest:
                self._reject(request)
                continue
            if self._order is None:
                self._queue.append(request)
            else:
                self._order.push(self._as_waiting(request))
            came = True
        self.waiting = len(self._line)
        return came

    def _arrive_in_turn(self, talks: Conversations) -> bool:
        """The same where requests are the turns of conversations."""
        came = False
        while (turn := talks.take(self._now)) is not None:
            request, self._due[turn[0]] = turn
            if self._prompt[request] + self._output[request] > self._longest:
                self._reject(request)
                talks.ended(request, turn[1])
                continue
            if self._order is None:
                self._queue.append(request)
            else:
                self._order.push(self._as_waiting(request))
            came = True
        self.waiting = len(self._line)
        return came

    def _reject(self, request: int) -> None:
        """Ends a request that can never fit."""
        due = self._due[request]
        self._rows.extend((request, due, due, -1, -1, due, 0, 0, FINISH_TOO_LONG))
        self.finished += 1

    def _step(self, plan: StepPlan) -> bool:
        """Takes one step; says whether anything but growth happened."""
        phase = plan.phase
        block_size = self.block_size
        running = self._running
        queue, line, order, cache = self._queue, self._line, self._order, self._cache
        decodes = preempted = prefill_tokens = 0
        prefill_work = 0.0
        entered: list[int] = []
        if phase is not PREFILL:
            preempted = self._grow()
            decodes = self.decoding
        if phase is not DECODE:
            budget = self.token_budget - decodes
            if self._partial >= 0 and budget > 0:
                chunk, work, lost = self._go_on_with_chunk(budget, entered)
                budget -= chunk
                prefill_tokens += chunk
                prefill_work += work
                preempted += lost
            if line and not preempted:
                room = min(self.slots - len(running), plan.admit)
                prompt = self._prompt
                while budget > 0 and room > 0 and line:
                    if order is None:
                        request = queue[0]
                    else:
                        named = order.peek(self)
                        if named is None:
                            break
                        assert isinstance(named.request, int)
                        request = named.request
                    tokens = prompt[request]
                    if self._resumed:
                        tokens += self._resumed.get(request, 0)
                    blocks = -(-tokens // block_size)
                    taken = blocks
                    had = 0
                    if cache is not None:
                        found = cache.find(request, tokens)
                        had = len(found) * block_size
                        taken -= cache.held_by_others(found)
                    # The whole prompt must fit at admission (vLLM's scheduler_reserve_full_isl), even where
                    # only a chunk of it is computed now.
                    if taken + (self.watermark_blocks if running else 0) > self.free_blocks:
                        break
                    if order is None:
                        queue.popleft()
                    else:
                        order.pop(self)
                    running[request] = None
                    room -= 1
                    if request not in self._preempted_of:
                        self._policy.on_admit(tokens)
                    tokens -= had
                    if tokens <= budget:
                        entered.append(request)
                    else:
                        tokens = budget
                        blocks = -(-(had + tokens) // block_size)
                        self._partial, self._partial_done = request, had + tokens
                    if cache is None:
                        self.free_blocks -= blocks
                    else:
                        self.free_blocks = cache.admit(request, found, blocks, had + tokens)
                    budget -= tokens
                    prefill_tokens += tokens
                    prefill_work += tokens * (had + tokens / 2)
            if phase is PREFILL and not prefill_tokens:
                # A prefill that looked possible came to nothing: decode in the same step, as the vLLM plugin does.
                preempted += self._grow()
                decodes = self.decoding
        self.preemptions += preempted
        # The oldest that runs always finds its blocks, so only a policy can leave a step empty.
        assert decodes or prefill_tokens, "the policy holds requests back while nothing can decode"

        clock = self._clock
        context = decodes * clock - self._shifts_sum if decodes else 0
        longest = clock - self._shifts[0] if decodes else 0
        seconds = self._cost.seconds(prefill_tokens, prefill_work, decodes, context, longest)
        duration = round(seconds * 1e9)
        start = self._now
        self._now = now = start + duration
        if decodes:
            self._clock = clock = clock + 1
            self._clock_ends.append(now)
        kv_tokens = (self.total_blocks - self.free_blocks) * block_size
        holding = len(running)
        if decodes:
            if entered:
                self._begin_decoding(entered)
            producing = self.decoding
            births, shifts = self._births, self._shifts
            produced = (
                producing,
                producing * clock - self._births_sum,
                clock - births[-1],
                clock - births[0],
                producing * clock - self._shifts_sum,
                clock - shifts[-1],
                clock - shifts[0],
            )
        else:
            counts = [self._resumed.get(request, 0) + 1 for request in entered]
            footprints = [self._prompt[r] + count for r, count in zip(entered, counts, strict=True)]
            if entered:
                self._begin_decoding(entered)
            produced = (
                len(entered),
                sum(counts),
                min(counts, default=0),
                max(counts, default=0),
                sum(footprints),
                min(footprints, default=0),
                max(footprints, default=0),
            )
        self._policy.on_steps(1, decodes, holding, len(entered))
        self._steps.extend(
            (
                start,
                duration,
                0 if decodes and prefill_tokens else 1 if prefill_tokens else 2,
                prefill_tokens,
                decodes,
                holding,
                len(line),
                preempted,
                kv_tokens,
                *produced,
                self._state_id,
            )
        )
        self.step_count += 1
        done = self._ends_at.pop(clock, None)
        if done is not None:
            self._finish(done)
        self.waiting = len(line)
        self.prefilling = 1 if self._partial >= 0 else 0
        return done is not None or prefill_tokens > 0 or preempted > 0

    def _begin_decoding(self, entered: list[int]) -> None:
        """Prompts are computed and have given a token: these requests decode from the next step on."""
        now, clock, block_size = self._now, self._clock, self.block_size
        births, shifts, needs_at, ends_at = self._births, self._shifts, self._needs_at, self._ends_at
        prompt, output, birth_of, resumed = self._prompt, self._output, self._birth, self._resumed
        births_sum = shifts_sum = 0
        for request in entered:
            birth = clock - 1
            if request in resumed:
                birth -= resumed[request]
                self._segment[request] = (now, clock)
            else:
                self._first[request] = now
            shift = birth - prompt[request]
            birth_of[request] = birth
            if births and birth < births[-1]:
                insort(births, birth)
            else:
                births.append(birth)
            insort(shifts, shift)
            births_sum += birth
            shifts_sum += shift
            needs_at[(shift + 2) % block_size][request] = None
            end = birth + output[request]
            if end in ends_at:
                ends_at[end].append(request)
            else:
                ends_at[end] = [request]
        self._births_sum += births_sum
        self._shifts_sum += shifts_sum
        self.decoding += len(entered)

    def _stop_decoding(self, stopped: list[int]) -> None:
        """Takes requests out of the decoding ones and gives back their slots and blocks."""
        clock, block_size = self._clock, self.block_size
        births, shifts, needs_at, running = self._births, self._shifts, self._needs_at, self._running
        births_sum = shifts_sum = blocks = 0
        cache = self._cache
        for request in stopped:
            birth = self._birth[request]
            shift = birth - self._prompt[request]
            del births[bisect_left(births, birth)]
            del shifts[bisect_left(shifts, shift)]
            births_sum += birth
            shifts_sum += shift
            del needs_at[(shift + 2) % block_size][request]
            del running[request]
            # Its prompt and all its tokens but the newest, which no step has computed yet.
            if cache is None:
                blocks += -((shift + 1 - clock) // block_size)
            else:
                self.free_blocks = cache.release(request, clock - 1 - shift)
        self._births_sum -= births_sum
        self._shifts_sum -= shifts_sum
        self.free_blocks += blocks
        self.decoding -= len(stopped)

    def _finish(self, done: list[int]) -> None:
        now = self._now
        self._stop_decoding(done)
        preempted_of, on_finish, rows = self._preempted_of, self._policy.on_finish, self._rows
        for request in done:
            due = self._due[request]
            output = self._output[request]
            preemptions = 0
            if request in preempted_of:
                preemptions = preempted_of[request]
                if request in self._resumed:
                    self._end_spell(request)
                    self._gaps[request] = self._gaps_of(self._spells.pop(request))
                    del self._resumed[request], self._segment[request]
            rows.extend((request, due, due, self._first[request], now, now, output, preemptions, FINISH_LENGTH))
            on_finish(output)
        self.finished += len(done)
        if self._talks is not None:
            for request in done:
                self._talks.ended(request, now)

    def _grow(self) -> int:
        """Gives each decoding request the block that its next token may need; returns how many were preempted."""
        if not self.decoding:
            return 0
        needing = self._needs_at[(self._clock + 1) % self.block_size]
        if len(needing) <= self.free_blocks:
            if self._cache is None:
                self.free_blocks -= len(needing)
            else:
                for request in needing:
                    self.free_blocks = self._cache.extend(request, 1)
            return 0
        before = len(self._running)
        for request in list(needing):
            if request not in needing:
                break  # preempted, and with it everything newer
            while not self.free_blocks:
                victim = next(reversed(self._running))
                self._preempt(victim)
                if victim == request:
                    break
            else:
                self.free_blocks = self.free_blocks - 1 if self._cache is None else self._cache.extend(request, 1)
        return before - len(self._running)

    def _go_on_with_chunk(self, budget: int, entered: list[int]) -> tuple[int, float, int]:
        """The next chunk of the partly computed prompt: its tokens, its work, and 1 where it lost its slot."""
        request, done = self._partial, self._partial_done
        tokens = self._prompt[request] + self._resumed.get(request, 0)
        chunk = min(tokens - done, budget)
        blocks = -(-(done + chunk) // self.block_size) - -(-done // self.block_size)
        if blocks > self.free_blocks:
            self._preempt(request)
            return 0, 0.0, 1
        if self._cache is None:
            self.free_blocks -= blocks
        else:
            self._cache.extend(request, blocks)
            self.free_blocks = self._cache.compute(request, done + chunk)
        if done + chunk == tokens:
            self._partial = -1
            entered.append(request)
        else:
            self._partial_done = done + chunk
        return chunk, chunk * (done + chunk / 2), 0

    def _preempt(self, request: int) -> None:
        """Takes slot and blocks from a request and puts it at the queue's front, nothing computed, output kept."""
        if request == self._partial:
            if self._cache is None:
                self.free_blocks += -(-self._partial_done // self.block_size)
            else:
                self.free_blocks = self._cache.release(request, self._partial_done)
            self._partial = -1
            del self._running[request]
        else:
            end = self._birth[request] + self._output[request]
            bucket = self._ends_at[end]
            bucket.remove(request)
            if not bucket:
                del self._ends_at[end]
            self._end_spell(request)
            self._resumed[request] = self._clock - self._birth[request]
            self._stop_decoding([request])
        if self._order is None:
            self._queue.appendleft(request)
        else:
            self._order.push_front(self._as_waiting(request))
        self._preempted_of[request] = self._preempted_of.get(request, 0) + 1

    def _as_waiting(self, request: int) -> Waiting:
        """A waiting request as the policy's order sees it."""
        low = None if self._low is None else self._low[request]
        high = None if self._high is None else self._high[request]
        return Waiting(request, self._prompt[request], self._resumed.get(request, 0), low, high)

    def _end_spell(self, request: int) -> None:
        """Writes down the spell of decoding that ends now."""
        entry_ns, entry = self._segment.get(request, (self._first[request], self._birth[request] + 1))
        self._spells.setdefault(request, []).append((entry_ns, entry, self._clock))

    def _gaps_of(self, spells: list[tuple[int, int, int]]) -> npt.NDArray[np.int64]:
        """The gaps between a request's tokens: in a spell one came when it began and one with each tick after."""
        times = array("q")
        for entry_ns, entry, last in spells:
            times.append(entry_ns)
            times.extend(self._clock_ends[entry + 1 : last + 1])
        stamps = np.frombuffer(times, dtype=np.int64)
        return stamps[1:] - stamps[:-1]

    def _leap_ahead(self, plan: StepPlan) -> bool:
        """Takes at once the steps in which requests only grow; False where there is none to take.

        They are the steps before the next completion, block shortage or arrival, with nothing to admit.
        """
        if not self._leap or not self.decoding or self._partial >= 0 or plan.phase is PREFILL:
            return False
        if self._order is not None and self._line:
            return False
        ends_at, clock, block_size = self._ends_at, self._clock, self.block_size
        steps = 0
        while steps < 4096 and clock + steps + 1 not in ends_at:
            steps += 1
        if steps < SHORTEST_LEAP or (plan.phase is MIXED and self._can_admit()):
            return False
        ahead = np.arange(1, steps + 1, dtype=np.int64)
        blocks = np.array([len(needing) for needing in self._needs_at], dtype=np.int64)[
            (clock + ahead) % block_size
        ].cumsum()
        steps = int(np.searchsorted(blocks, self.free_blocks, side="right"))
        if not steps:
            return False
        n = self.decoding
        seconds = self._cost.decode_seconds(n, n * clock - self._shifts_sum, clock - self._shifts[0], steps)
        durations = np.rint(seconds * 1e9).astype(np.int64)
        ends = self._now + durations.cumsum()
        steps = min(steps, int(np.searchsorted(ends, self._next_due(), side="left")) + 1)
        ends, durations, ahead, blocks = ends[:steps], durations[:steps], ahead[:steps], blocks[:steps]
        rows = np.zeros((steps, len(STEP_FIELDS)), dtype=np.int64)
        births, shifts = self._births, self._shifts
        columns: tuple[npt.NDArray[np.int64] | int, ...] = (
            ends - durations,
            durations,
            2,
            0,
            n,
            n,
            len(self._line),
            0,
            (self.total_blocks - self.free_blocks + blocks) * block_size,
            n,
            n * (clock + ahead) - self._births_sum,
            clock + ahead - births[-1],
            clock + ahead - births[0],
            n * (clock + ahead) - self._shifts_sum,
            clock + ahead - shifts[-1],
            clock + ahead - shifts[0],
            self._state_id,
        )
        for i, values in enumerate(columns):
            rows[:, i] = values
        self._steps.frombytes(rows.tobytes())
        self._clock_ends.frombytes(ends.tobytes())
        self._clock += steps
        self._now = int(ends[-1])
        self.free_blocks -= int(blocks[-1])
        self.step_count += steps
        self._policy.on_steps(steps, n, n, 0)
        return True

    def _can_admit(self) -> bool:
        if not self._queue or len(self._running) >= self.slots or self.token_budget <= self.decoding:
            return False
        request = self._queue[0]
        blocks = -(-(self._prompt[request] + self._resumed.get(request, 0)) // self.block_size)
        return blocks + self.watermark_blocks <= self.free_blocks
