"""What the next step computes, and whose KV blocks it takes.

The rules are stock vLLM's (spec: vllm-policies, "what agreed on every step"): running requests first and in their
order, one token each while decoding; then, unless the step preempted, waiting ones first come first served or in the
policy's order, of the last of them possibly only a chunk of its prompt; a request that finds no block preempts the
newest, which goes back to the queue's front with nothing computed; one block of the pool is vLLM's null block.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.simulate.prefix_cache import PrefixCache
from harness.simulate.state import State
from harness.simulate.token_times import TokenTimes
from policies.core import Phase, Policy, StepPlan

# An enum's members cost a look-up each time.
_, PREFILL, DECODE = Phase


@dataclass(slots=True)
class Step:
    """What one step computes; `prefill_work` is Σ n(context + n/2) over its chunks of n prompt tokens, token²."""

    prefill_tokens: int = 0
    prefill_work: float = 0.0
    decodes: int = 0
    preempted: int = 0
    completed: list[int] = field(default_factory=list)  # prompts whose last chunk it computes


class Scheduler:
    """Gives slots and blocks to requests and takes them back."""

    def __init__(self, state: State, policy: Policy, cache: PrefixCache | None, times: TokenTimes) -> None:
        self._state = state
        self._policy = policy
        self._cache = cache
        self._times = times

    def schedule(self, plan: StepPlan) -> Step:
        """Fills the next step as far as the plan lets it."""
        state = self._state
        step = Step()
        if plan.phase is not PREFILL:
            self._grow(step)
        if plan.phase is not DECODE:
            if state.partial >= 0 and step.decodes < state.token_budget:
                self._continue_partial(step, plan.tokens)
            if state.waiting_queue and not step.preempted:
                self._admit(step, plan.admit, plan.tokens)
            if plan.phase is PREFILL and not step.prefill_tokens:
                # A prefill that looked possible came to nothing: decode in the same step, as the vLLM plugin does.
                self._grow(step)
        return step

    def _grow(self, step: Step) -> None:
        """Decodes, once each request has the block that its next token may need."""
        state, cache = self._state, self._cache
        if not state.decoding:
            return
        needing = state.batch.needs_at[(state.batch.clock + 1) % state.block_size]
        if len(needing) > state.free_blocks:
            self._grow_short(needing, step)
        elif cache is None:
            state.free_blocks -= len(needing)
        else:
            for request in needing:
                state.free_blocks = cache.extend(request, 1)
        step.decodes = state.decoding

    def _grow_short(self, needing: dict[int, None], step: Step) -> None:
        """Gives out blocks where there are too few: whoever finds none preempts the newest."""
        state, cache = self._state, self._cache
        for request in list(needing):
            if request not in needing:
                break  # preempted, and with it everything newer
            while not state.free_blocks:
                victim = next(reversed(state.running))
                self._preempt(victim, step)
                if victim == request:
                    break
            else:
                state.free_blocks = state.free_blocks - 1 if cache is None else cache.extend(request, 1)

    def _continue_partial(self, step: Step, most_tokens: int) -> None:
        """Computes more of the prompt that is partly computed; without blocks for it the request loses its slot."""
        state, size = self._state, self._state.block_size
        request, computed = state.partial, state.num_computed_tokens
        left = state.num_tokens(request) - computed
        chunk = min(left, state.token_budget - step.decodes, most_tokens)
        blocks = -(-(computed + chunk) // size) - -(-computed // size)
        if blocks > state.free_blocks:
            self._preempt(request, step)
            return
        if self._cache is None:
            state.free_blocks -= blocks
        else:
            self._cache.extend(request, blocks)
            state.free_blocks = self._cache.compute(request, computed + chunk)
        if chunk == left:
            state.partial = -1
            step.completed.append(request)
        else:
            state.num_computed_tokens = computed + chunk
        step.prefill_tokens += chunk
        step.prefill_work += chunk * (computed + chunk / 2)

    def _admit(self, step: Step, most: int, most_tokens: int) -> None:
        """Starts those that wait while there are tokens, slots and blocks for them, and at most so many."""
        state, cache, size = self._state, self._cache, self._state.block_size
        order, fcfs_queue, waiting_queue, running = state.order, state.fcfs_queue, state.waiting_queue, state.running
        num_prompt_tokens, preempted_output_tokens = state.num_prompt_tokens, state.preempted_output_tokens
        budget = min(state.token_budget - step.decodes, most_tokens) - step.prefill_tokens
        room = min(state.slots - len(running), most)
        while budget > 0 and room > 0 and waiting_queue:
            if order is None:
                request = fcfs_queue[0]
            else:
                waiting = order.peek(state)
                if waiting is None:
                    break
                assert isinstance(waiting.request_id, int)
                request = waiting.request_id
            tokens = num_prompt_tokens[request]
            if preempted_output_tokens:
                tokens += preempted_output_tokens.get(request, 0)
            blocks = -(-tokens // size)
            cached_tokens = shared_blocks = 0
            if cache is not None:
                cached_blocks = cache.find(request, tokens)
                cached_tokens, shared_blocks = len(cached_blocks) * size, cache.held_by_others(cached_blocks)
            elif state.prompts_come_computed and request not in state.preemptions:
                # As of a prompt that a cache has whole, its last token is computed here.
                cached_tokens = tokens - 1
            # The whole prompt must fit at admission (vLLM's scheduler_reserve_full_isl), even where only a chunk of
            # it is computed now.
            if blocks - shared_blocks + (state.watermark_blocks if running else 0) > state.free_blocks:
                break
            if order is None:
                fcfs_queue.popleft()
            else:
                order.pop(state)
            running[request] = None
            room -= 1
            if request not in state.preemptions:
                self._policy.on_admit(tokens)
            chunk = tokens - cached_tokens
            if chunk <= budget:
                step.completed.append(request)
            else:
                chunk = budget
                state.partial, state.num_computed_tokens = request, cached_tokens + chunk
                blocks = -(-(cached_tokens + chunk) // size)
            if cache is None:
                state.free_blocks -= blocks
            else:
                state.free_blocks = cache.admit(request, cached_blocks, blocks, cached_tokens + chunk)
            budget -= chunk
            step.prefill_tokens += chunk
            step.prefill_work += chunk * (cached_tokens + chunk / 2)

    def _preempt(self, request: int, step: Step) -> None:
        """Takes slot and blocks from a request and puts it at the queue's front, nothing computed, output kept."""
        state, batch = self._state, self._state.batch
        if request == state.partial:
            del state.running[request]
            if self._cache is None:
                state.free_blocks += -(-state.num_computed_tokens // state.block_size)
            else:
                state.free_blocks = self._cache.release(request, state.num_computed_tokens)
            state.partial = -1
        else:
            state.preempted_output_tokens[request] = tokens = batch.interrupt(request)
            self._times.end(request, tokens, batch.clock)
            self.stop([request])
        state.push_front(request)
        state.preemptions[request] = state.preemptions.get(request, 0) + 1
        step.preempted += 1

    def stop(self, stopped: list[int]) -> None:
        """Takes slots and blocks from requests that decode."""
        state, cache = self._state, self._cache
        if cache is not None:
            for request in stopped:
                state.free_blocks = cache.release(request, state.batch.num_computed_tokens(request))
        blocks = state.batch.leave(stopped)
        if cache is None:
            state.free_blocks += blocks
        for request in stopped:
            del state.running[request]
        state.decoding -= len(stopped)
