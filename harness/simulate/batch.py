"""Iteration-level batching in virtual time: requests arrive, the policy plans, a step is scheduled, run and seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.profiles.cost import CostModel
from harness.simulate.arrivals import NEVER, Arrivals
from harness.simulate.leap import SHORTEST, Leap, leap_ahead
from harness.simulate.limits import EngineLimits, too_long
from harness.simulate.prefix_cache import PrefixCache
from harness.simulate.router import Desk
from harness.simulate.rows import FINISH_LENGTH, FINISH_TOO_LONG, RowLog, Rows, pack_request, pack_step
from harness.simulate.scheduler import Scheduler
from harness.simulate.state import State
from harness.simulate.token_times import TokenTimes
from policies.core import LONGEST_HOLD_S, MIXED, UNLIMITED, Policy, PolicyFault, PolicyState, StepPlan, due_ns
from policies.timed import TimedSteps, hearer_of
from workloads.core.stream import Stream
from workloads.lengths.hints import Hints


class BatchLoop:
    """One engine replaying one stream under one policy.

    One of several replicas gets what comes from its `desk`, keeps what its policy held among the `states` of all, and
    lists the gaps of every request, since its steps will lie among those of others.
    """

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
        ttft_s: float | None = None,
        desk: Desk | None = None,
        states: list[PolicyState] | None = None,
    ) -> None:
        self.finished = 0
        self.step_count = 0
        self.preemptions = 0
        self.whole = False  # every request sent has ended
        self._policy = policy
        self._cost = cost
        self._cache = cache
        # Which blocks are taken, and when, decides what the cache still holds: every step is taken.
        self._leap = leap and cache is None
        self._refused = too_long(stream.trace, limits)
        last_send = NEVER if max_duration_s is None else round(max_duration_s * 1e9)
        self._arrivals = desk or Arrivals(stream, last_send, self._refused)
        self._lists_gaps = desk is not None
        self.state = State(stream.trace, limits, policy.order, hints, self._arrivals.due, ttft_s)
        self._times = TokenTimes(len(stream.trace))
        self._scheduler = Scheduler(self.state, policy, cache, self._times)
        self._log = RowLog(states)
        self._hear = hearer_of(policy)
        self._timed = TimedSteps()
        self._now = 0
        self._duration = 0  # of the last step, ns
        self._held_since = -1  # while a plan that holds all back stands, else -1

    @property
    def sent(self) -> int:
        """Requests of the stream that have arrived."""
        return self._arrivals.sent

    @property
    def now(self) -> int:
        """Where its time stands, ns: at the end of its last step, or when it will look again."""
        return self._now

    @property
    def holds(self) -> bool:
        """Whether its policy holds all back, so that nothing runs."""
        return self._held_since >= 0

    def wake(self, at: int) -> None:
        """A request comes at `at` while nothing is left to do, or all is held back: it looks again then."""
        self._now = at if self.holds else max(self._now, at)

    def run(self, sink: Callable[[Rows], bool], every: int = 1024) -> bool:
        """Replays the stream; hands rows to `sink` about every `every` steps.

        Returns True when every request sent has ended, False when `sink` said stop (it returned False).
        """
        flushed = 0
        for busy in self.turns():
            if not busy:
                break
            if self.step_count - flushed >= every:
                flushed = self.step_count
                if not sink(self.drain()):
                    return False
        sink(self.drain())
        self.whole = True
        return True

    def turns(self) -> Iterator[bool]:
        """Does one thing a turn: a step, a leap, or waiting until the next request; False where nothing is left to do.

        A turn after that looks again whether something has come.
        """
        state, policy, arrivals, log = self.state, self._policy, self._arrivals, self._log
        batch, hear = state.batch, self._hear
        changed = True
        plan, again_at, again_ns = MIXED, 0, UNLIMITED
        while True:
            # A place in a closed loop becomes free only where something changed.
            if (changed or arrivals.next_due <= self._now) and self._arrive():
                changed = True
            if not state.running and not state.waiting_queue:
                busy = arrivals.next_due != NEVER
                if busy:
                    self._now = max(self._now, arrivals.next_due)
                yield busy
                continue
            # An order may let someone start as time goes by: it is asked before each step in which anyone waits.
            drawn = state.order is not None and state.waiting_queue
            if changed or self.step_count >= again_at or self._now >= again_ns or drawn:
                if hear is not None:
                    self._timed.tell(hear)
                state.now_ns = self._now
                plan = policy.plan(state)
                again_at = self.step_count + plan.steps
                # Most plans name no time: a call for each is a hundredth of the replay, as is one of `min` below.
                again_ns = UNLIMITED if plan.again_at_s is None else due_ns(plan.again_at_s)
                policy_state = policy.state()
                if policy_state is not log.policy_state:
                    log.set_state(policy_state)
            leap = None
            # Where a request ends with the very next step there is nothing to leap over.
            if self._leap and batch.clock + 1 not in batch.ends_at:
                horizon = arrivals.horizon
                until = again_ns if again_ns < horizon else horizon
                # Nor where what another replica does may cut it short.
                if not self._lists_gaps or until - self._now >= SHORTEST * self._duration:
                    most = again_at - self.step_count
                    leap = leap_ahead(state, plan, most, self._cost, self._now, until)
            changed = self._step(plan, again_ns) if leap is None else self._take(leap)
            yield True

    def drain(self) -> Rows:
        """The rows since the last call."""
        requests, steps = self._log.drain()
        rows = Rows(requests, steps, self._times.drain(), self._log.states, self._now, self.finished)
        if self._cache is not None:
            rows.cached_tokens = list(map(self._cache.cached_tokens.get, rows.request_column("row").tolist()))
        return rows

    def _arrive(self) -> bool:
        """Queues what comes by now; says whether anything did."""
        state = self.state
        arrived = self._arrivals.take(self._now)
        if self._refused and arrived:
            arrived = self._refuse(arrived)
        if not arrived:
            return False
        state.push(arrived)
        state.waiting = len(state.waiting_queue)
        return True

    def _refuse(self, arrived: list[int]) -> list[int]:
        """Ends those that can never fit; returns the others."""
        refused = [request for request in arrived if request in self._refused]
        for request in refused:
            due = self._arrivals.due[request]
            self._log.requests += pack_request(request, due, due, -1, -1, due, 0, 0, FINISH_TOO_LONG)
        self.finished += len(refused)
        return [request for request in arrived if request not in self._refused]

    def _step(self, plan: StepPlan, again_ns: int) -> bool:
        """Schedules and runs one step, and sees what it brought; says whether anything but growth happened."""
        state, batch = self.state, self.state.batch
        step = self._scheduler.schedule(plan)
        prefill_tokens, decodes = step.prefill_tokens, step.decodes
        if not decodes and not prefill_tokens:
            self._hold(again_ns)
            return False
        self._held_since = -1

        context, longest = batch.context() if decodes else (0, 0)
        seconds = self._cost.seconds(prefill_tokens, step.prefill_work, decodes, context, longest)
        start, self._duration = self._now, round(seconds * 1e9)
        duration = self._duration
        self._now = now = start + duration
        if decodes:
            batch.clock += 1
            self._times.ticks.append(now)

        completed, running = step.completed, len(state.running)
        if completed:
            self._begin_decoding(completed)
        self._policy.on_steps(1, decodes, running, len(completed))
        if self._hear is not None:
            self._timed.add(1, prefill_tokens, step.prefill_work, decodes, context, duration, step.preempted)
        self._log.steps += pack_step(
            start,
            duration,
            0 if decodes and prefill_tokens else 1 if prefill_tokens else 2,
            prefill_tokens,
            decodes,
            running,
            len(state.waiting_queue),
            step.preempted,
            (state.total_blocks - state.free_blocks) * state.block_size,
            *(batch.produced(batch.clock) if decodes else batch.produced_by(completed)),
            self._log.state_index,
        )
        self.step_count += 1
        self.preemptions += step.preempted
        finished = batch.ends_at.pop(batch.clock, None)
        if finished is not None:
            self._finish(finished)
        state.waiting = len(state.waiting_queue)
        state.prefilling = 1 if state.partial >= 0 else 0
        return finished is not None or prefill_tokens > 0 or step.preempted > 0

    def _hold(self, again_ns: int) -> None:
        """Nothing ran: the oldest that runs always finds its blocks, so only a policy can leave a step empty.

        Time goes on until the policy wants to be asked again, or a request comes; PolicyFault where it names no time.
        """
        if self._held_since < 0:
            self._held_since = self._now
        held = f"holds {len(self.state.waiting_queue)} requests back at step {self.step_count}"
        if again_ns == UNLIMITED or again_ns <= self._now:
            raise PolicyFault(f"the policy {held} while nothing can decode")
        self._now = min(again_ns, self._arrivals.next_due)
        if self._now - self._held_since > LONGEST_HOLD_S * 1e9:
            raise PolicyFault(f"the policy {held} for more than {LONGEST_HOLD_S:g} s while nothing runs")

    def _begin_decoding(self, completed: list[int]) -> None:
        """Prompts are computed and have given a token: these requests decode from the next step on."""
        state = self.state
        self._times.begin(completed, state.preempted_output_tokens, self._now, state.batch.clock)
        state.batch.enter(completed, state.preempted_output_tokens)
        state.decoding += len(completed)

    def _finish(self, finished: list[int]) -> None:
        """Ends requests that have all their tokens."""
        state, now = self.state, self._now
        due_of, first, max_tokens = self._arrivals.due, self._times.first, state.max_tokens
        on_finish, rows = self._policy.on_finish, self._log.requests
        self._scheduler.stop(finished)
        for request in finished:
            due, tokens = due_of[request], max_tokens[request]
            preemptions = 0
            listed = self._lists_gaps
            if request in state.preemptions:
                preemptions = state.preemptions[request]
                listed |= state.preempted_output_tokens.pop(request, None) is not None
            if listed:
                self._times.finish(request, tokens, state.batch.clock)
            rows += pack_request(request, due, due, first[request], now, now, tokens, preemptions, FINISH_LENGTH)
            on_finish(tokens)
        self.finished += len(finished)
        self._arrivals.ended(finished, now)

    def _take(self, leap: Leap) -> bool:
        """Takes the steps of a leap; says that nothing happened but growth."""
        state, steps = self.state, len(leap.ends)
        leap.rows[:, -1] = self._log.state_index
        self._log.steps += leap.rows.tobytes()
        self._times.ticks.frombytes(leap.ends.tobytes())
        end = int(leap.ends[-1])
        if self._hear is not None:
            n = state.decoding
            contexts = steps * state.batch.context()[0] + n * (steps * (steps - 1) // 2)
            self._timed.add(steps, 0, 0.0, n, contexts, end - self._now, 0)
        state.batch.clock += steps
        state.free_blocks -= leap.blocks
        self._now = end
        self.step_count += steps
        self._policy.on_steps(steps, state.decoding, state.decoding, 0)
        return False
