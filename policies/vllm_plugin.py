"""Our policies inside vLLM: one scheduler class, loaded by name, for every policy of the catalog.

    vllm serve MODEL --scheduler-cls policies.vllm_plugin.PolicyScheduler --additional-config
        '{"bench_policy": {"name": "eb", "options": {"k": "32"}, "costs": null, "step_log": "/path/steps.bin"}}'

`options` are strings as in policies/catalog.py, `costs` the fields of StepCosts or null, `step_log` may be left
out. Allocation stays vLLM's own: its `schedule()` runs on a narrowed view of the requests, which is put back
afterwards. A prefill step hides the decoding requests, a decode step lets nobody in, a mixed step is stock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import vllm
from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request, RequestStatus

from policies.catalog import canonical_policy, make_policy
from policies.core import UNLIMITED, Order, Partial, Phase, Policy, PolicyError, PolicyState, StepPlan, Waiting
from policies.progress import Progress, statistics_of
from policies.step_log import ABORT, ADMISSION, ARRIVAL, FINISH, PREEMPTION, StepLog
from policies.threshold import StepCosts

logger = init_logger(__name__)

MIXED, PREFILL, DECODE = Phase
Answer = TypeVar("Answer")

# What other versions of vLLM call the same thing, newest first.
ADMISSION_LIMITS = ("max_num_active_reqs", "max_num_running_reqs")
OTHER_QUEUES = ("kv_holding_waiting", "skipped_waiting")

# Names that this file stands on.
SCHEDULER_NAMES = ("running", "waiting", "requests", "kv_cache_manager", "kv_cache_config", "finished_req_ids")
SCHEDULER_METHODS = ("schedule", "update_from_output", "add_request", "_preempt_request", "_free_request")
REQUEST_NAMES = (
    "_output_token_ids",
    "is_prefill_chunk",
    "max_tokens",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_preemptions",
    "num_prompt_tokens",
    "sampling_params",
)

# An empty output carries these to the workers once; they go along with the step that takes its place.
ONE_SHOT_SETS = ("finished_req_ids", "preempted_req_ids")
ONE_SHOT_LISTS = ("free_encoder_mm_hashes", "new_block_ids_to_zero", "kv_cache_block_copies")

COMPLETED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


class PolicyFault(RuntimeError):
    """A policy failed or would stall the engine: the line names the policy and the step."""


class BesideDecodes(list[Any]):
    """What a prefill step sees of `running`; hidden decodes still run, so the watermark holds."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class EngineView:
    """The policy's View of the scheduler: counts as of the step's start, free blocks as they are."""

    def __init__(self, scheduler: PolicyScheduler) -> None:
        manager = scheduler.kv_cache_manager
        self._scheduler = scheduler
        self._pool = manager.block_pool
        self.slots: int = scheduler.full_limit
        self.token_budget: int = scheduler.max_num_scheduled_tokens
        self.block_size: int = scheduler.block_size
        self.total_blocks: int = self._pool.num_gpu_blocks - 1  # one is the null block
        self.watermark_blocks: int = getattr(manager, "watermark_blocks", 0)
        self.waiting = self.prefilling = self.decoding = 0

    @property
    def free_blocks(self) -> int:
        """KV blocks that are free at this moment."""
        return int(self._pool.get_num_free_blocks())

    def waiting_tokens(self) -> Iterator[int]:
        """Tokens to prefill of each waiting request, first come first."""
        scheduler = self._scheduler
        for queue in (scheduler.other_queue, scheduler.waiting):
            for request in queue:
                yield request.num_tokens

    def ages(self) -> list[int]:
        """Output tokens so far of each decoding request, descending; those in flight count."""
        return self._scheduler.progress.generated()

    def footprints(self) -> list[int]:
        """Prompt plus output tokens so far of each decoding request, descending."""
        return self._scheduler.progress.footprints()

    def partials(self) -> list[Partial]:
        """The requests whose prompts are partly computed, in order of admission."""
        return [
            Partial(r.num_tokens - r.num_computed_tokens, r.num_prompt_tokens, len(r._output_token_ids))
            for r in self._scheduler.partials.values()
        ]


class OrderedQueue(RequestQueue):
    """vLLM's waiting queue in the order of a policy: true while somebody may start now, as long as all that wait."""

    def __init__(self, order: Order, scheduler: PolicyScheduler) -> None:
        self._order = order
        self._scheduler = scheduler
        self._requests: dict[Hashable, Request] = {}

    def held_back(self) -> bool:
        """Some wait and the order lets nobody start."""
        return bool(self._requests) and self._named() is None

    def _named(self) -> Waiting | None:
        return self._scheduler.asked("order.peek", self._order.peek, self._scheduler.view)

    def add_request(self, request: Request) -> None:
        """A request has arrived."""
        self._requests[request.request_id] = request
        self._scheduler.asked("order.push", self._order.push, as_waiting(request))

    def prepend_request(self, request: Request) -> None:
        """A request was preempted, or could not start now."""
        self._requests[request.request_id] = request
        self._scheduler.asked(
            "order.push_front", self._order.push_front, as_waiting(request, self._scheduler.tokens_on_the_way)
        )

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Several of these, the last one to be the first."""
        for request in requests:
            self.prepend_request(request)

    def peek_request(self) -> Request:
        """Who is to start now."""
        one = self._named()
        if one is None:
            raise IndexError("nobody may start now")
        return self._requests[one.request]

    def pop_request(self) -> Request:
        """Takes out who starts now."""
        one = self._scheduler.asked("order.pop", self._order.pop, self._scheduler.view)
        return self._requests.pop(one.request)

    def remove_request(self, request: Request) -> None:
        """A waiting request was aborted."""
        if self._requests.pop(request.request_id, None) is not None:
            self._scheduler.asked("order.remove", self._order.remove, request.request_id)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Several of these."""
        for request in requests:
            self.remove_request(request)

    def __bool__(self) -> bool:
        one = self._named()
        if one is None:
            return False
        request = self._requests[one.request]
        # Its last tokens are on the way from before it was preempted: stock would let others pass it.
        stale = getattr(request, "num_stale_output_tokens", 0) and not getattr(request, "drop_stale_output", False)
        return not stale

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return (self._requests[one.request] for one in self._order)


class PolicyScheduler(AsyncScheduler):
    """vLLM's scheduler asking a policy of ours before each step, and writing down what each step was."""

    running: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        setup = read_setup(self.vllm_config)
        check_engine(self)
        self._limit_name = next(name for name in ADMISSION_LIMITS if hasattr(self, name))
        self._other_name = next((name for name in OTHER_QUEUES if hasattr(self, name)), "")
        self.full_limit: int = getattr(self, self._limit_name)
        self.policy_name = canonical_policy(setup["name"], setup["options"])
        self.bench_policy: Policy = make_policy(setup["name"], setup["options"], self.full_limit, setup["costs"])
        self.clock: Callable[[], int] = time.monotonic_ns
        self.progress = Progress()
        self.partials: dict[str, Request] = {}  # prompts partly computed, in order of admission
        self.steps = 0  # scheduled so far, empty ones left out
        # Of the step scheduled last: prefill tokens, Σ n(context + n/2) over its chunks, decodes, Σ of their
        # contexts and the longest of these.
        self.content: tuple[int, float, int, int, int] = (0, 0.0, 0, 0, 0)
        self.tokens_on_the_way: int | None = None  # while a request loses its slot: its output, in flight included
        self._preempted = 0
        self._scheduled: Iterable[str] = ()  # names in the last output
        self._state: PolicyState | None = None
        self._state_id = -1
        self._pending: deque[tuple[int, tuple[int, ...]]] = deque()  # when it was scheduled, and what it was
        self._done = 0  # steps whose output has come
        self._last_output = 0
        self._log: StepLog | None = None
        order = self.bench_policy.order
        if order is not None:
            self.waiting = OrderedQueue(order, self)
        self.view = EngineView(self)
        if setup["step_log"] is not None:
            self._log = open_log(setup["step_log"], self)
        logger.info("policy %s, step log %s", self.policy_name, setup["step_log"])

    @property
    def other_queue(self) -> Any:
        """Waiting requests that vLLM keeps apart: those that were skipped, or hold KV blocks."""
        return getattr(self, self._other_name) if self._other_name else ()

    def asked(self, what: str, question: Callable[..., Answer], *args: Any) -> Answer:
        """The policy's answer; PolicyFault names policy and step where it fails."""
        try:
            return question(*args)
        except Exception as error:
            raise PolicyFault(
                f"policy {self.policy_name} failed at step {self.steps} in {what}: {type(error).__name__}: {error}"
            ) from error

    # What vLLM calls.

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """A step as the policy plans it."""
        begun = self.clock()
        if self._log is not None and self._log.fault is not None:
            raise PolicyFault(f"the step log cannot be written any more: {self._log.fault}")
        view = self.view
        held = len(self.running)
        view.waiting = len(self.waiting) + len(self.other_queue)
        view.prefilling = len(self.partials)
        view.decoding = held - view.prefilling
        plan = self.asked("plan", self.bench_policy.plan, view)
        self._preempted = 0
        output = self._narrowed(plan, args, kwargs)
        self._scheduled = output.num_scheduled_tokens
        if self._scheduled:
            self._account(begun, output.num_scheduled_tokens, held)
        elif not self.running and view.waiting:
            self._refuse_to_stall(plan)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The step's tokens have come: its row is complete."""
        if scheduler_output.num_scheduled_tokens:
            now = self.clock()
            begun, columns = self._pending.popleft()
            # With async scheduling a step is scheduled while the one before runs: it starts when that ends.
            start = max(begun, self._last_output)
            self._last_output = now
            self._done += 1
            if self._log is not None:
                self._log.step((start, now - start, *columns))
        return super().update_from_output(scheduler_output, model_runner_output)

    def add_request(self, request: Request) -> None:
        """Writes down the arrival."""
        if self._log is not None and request.request_id not in self.requests:
            self._event(ARRIVAL, request, self.steps, request.num_prompt_tokens)
        super().add_request(request)

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._preempted += 1
        generated = self.tokens_on_the_way = self._forget(request)
        result = super()._preempt_request(request, *args, **kwargs)
        self.tokens_on_the_way = None
        if self._log is not None:
            self._event(PREEMPTION, request, self.steps, generated)
        return result

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._forget(request)
        generated = len(request._output_token_ids)
        completed = request.status in COMPLETED
        if completed:
            self.asked("on_finish", self.bench_policy.on_finish, generated)
        if self._log is not None:
            self._event(FINISH if completed else ABORT, request, self._done - 1 if completed else self.steps, generated)
        return super()._free_request(request, *args, **kwargs)

    # One step.

    def _narrowed(self, plan: StepPlan, args: Any, kwargs: Any) -> Any:
        """Stock `schedule()` on what the plan leaves in sight."""
        # A paused session's slot counts for vLLM, though it is not in `running`.
        paused = getattr(self, "num_waiting_for_streaming_input", 0)
        running, partials = self.running, self.partials
        if plan.phase is MIXED:
            if plan.admit >= UNLIMITED:
                return super().schedule(*args, **kwargs)
            return self._stock(running, [], len(running) + paused + plan.admit, args, kwargs)
        decodes, chunks = running, list(partials.values())
        if chunks:
            decodes = running[: -len(chunks)]
            if running[-len(chunks) :] != chunks:
                decodes = [request for request in running if request.request_id not in partials]
        if plan.phase is DECODE:
            return self._stock(decodes, chunks, len(decodes) + paused, args, kwargs)
        before = self._scheduled
        limit = min(self.full_limit - len(decodes), len(chunks) + paused + plan.admit)
        if decodes:
            self.running = BesideDecodes(chunks)
            try:
                output = self._stock(self.running, [], limit, args, kwargs)
            finally:
                self.running = [*decodes, *self.running]
        else:
            output = self._stock(running, [], limit, args, kwargs)
        if decodes and not output.num_scheduled_tokens:
            # A prefill that looked possible came to nothing: decode in the same step. What the workers were
            # given last is still theirs.
            if hasattr(self, "prev_step_scheduled_req_ids"):
                self.prev_step_scheduled_req_ids.update(before)
            instead = self._stock(decodes, self.running[len(decodes) :], len(decodes) + paused, args, kwargs)
            merge_one_shot(output, instead)
            return instead
        return output

    def _stock(self, running: list[Any], hidden: list[Any], limit: int, args: Any, kwargs: Any) -> Any:
        """Stock `schedule()` on these running requests, with admission up to `limit` of them."""
        self.running = running
        setattr(self, self._limit_name, min(self.full_limit, limit))
        try:
            return super().schedule(*args, **kwargs)
        finally:
            setattr(self, self._limit_name, self.full_limit)
            if hidden:
                self.running = [*self.running, *hidden]

    def _account(self, begun: int, scheduled: dict[str, int], held: int) -> None:
        """Tells the policy what the step is, and keeps its row until its output comes."""
        progress, partials, policy = self.progress, self.partials, self.bench_policy
        # Stock admits nobody in a step that preempted, and else only appends.
        admitted = [] if self._preempted else self.running[held:]
        prefills = [request for name, request in partials.items() if name in scheduled] if partials else []
        prefills += admitted
        decodes = len(scheduled) - len(prefills)
        context = longest = 0
        if decodes:
            progress.take_along(decodes, scheduled)
            context, longest = progress.context()
            progress.tick()
        prefill_tokens = 0
        prefill_work = 0.0
        entered: list[tuple[int, int]] = []
        for request in prefills:
            name = request.request_id
            tokens = scheduled[name]
            prefill_tokens += tokens
            prefill_work += tokens * (request.num_computed_tokens - tokens / 2)
            if request.is_prefill_chunk:
                partials[name] = request
                continue
            partials.pop(name, None)
            prompt = request.num_prompt_tokens
            generated = len(request._output_token_ids) + request.num_output_placeholders
            progress.enter(name, prompt, generated, request.max_tokens)
            entered.append((prompt, generated))
        running = len(self.running)
        try:
            for request in admitted:
                if not request.num_preemptions:
                    policy.on_admit(request.num_prompt_tokens)
            policy.on_steps(1, decodes, running, len(entered))
            state = policy.state()
        except Exception as error:
            raise PolicyFault(
                f"policy {self.policy_name} failed at step {self.steps} when told of it: "
                f"{type(error).__name__}: {error}"
            ) from error
        self.content = (prefill_tokens, prefill_work, decodes, context, longest)
        if self._log is not None:
            for request in admitted:
                self._event(ADMISSION, request, self.steps, request.num_computed_tokens - scheduled[request.request_id])
            if state is not self._state:
                self._state = state
                self._state_id += 1
                self._log.state(state or PolicyState())
        view = self.view
        self._pending.append(
            (
                begun,
                (
                    0 if decodes and prefill_tokens else 1 if prefill_tokens else 2,
                    prefill_tokens,
                    decodes,
                    running,
                    len(self.waiting) + len(self.other_queue),
                    self._preempted,
                    (view.total_blocks - view.free_blocks) * view.block_size,
                    *(progress.statistics() if decodes else statistics_of(entered)),
                    self._state_id,
                ),
            )
        )
        self.steps += 1

    def _refuse_to_stall(self, plan: StepPlan) -> None:
        waiting = self.waiting
        held_back = isinstance(waiting, OrderedQueue) and waiting.held_back()
        if plan.phase is DECODE or plan.admit <= 0 or held_back:
            raise PolicyFault(
                f"policy {self.policy_name} holds {self.view.waiting} requests back at step {self.steps} "
                "while nothing can decode: the engine would spin"
            )

    def _forget(self, request: Request) -> int:
        """The request holds no slot any more; what it had generated, tokens."""
        generated = self.progress.leave(request.request_id)
        self.partials.pop(request.request_id, None)
        return len(request._output_token_ids) if generated is None else generated

    def _event(self, kind: int, request: Request, step: int, tokens: int) -> None:
        assert self._log is not None
        self._log.event(kind, self.clock(), step, tokens, request.num_preemptions, request.request_id)

    def shutdown(self) -> None:
        """Writes the last steps out."""
        super().shutdown()
        if self._log is not None:
            self._log.close()


def merge_one_shot(empty: Any, output: Any) -> None:
    """Moves what an empty output would have told the workers once into the output that takes its place."""
    for name in ONE_SHOT_SETS:
        told = getattr(empty, name, None)
        if told:
            setattr(output, name, told | (getattr(output, name) or set()))
    for name in ONE_SHOT_LISTS:
        told = getattr(empty, name, None)
        if told:
            setattr(output, name, [*told, *(getattr(output, name) or [])])


def as_waiting(request: Request, generated: int | None = None) -> Waiting:
    """A vLLM request as an admission order sees it; its `out_hint` becomes the bounds of its output.

    `generated` counts its output where some of it is still on the way.
    """
    low, high = hint_of(request)
    had = len(request._output_token_ids) if generated is None else generated
    return Waiting(request.request_id, request.num_prompt_tokens, had, low, high)


def hint_of(request: Request) -> tuple[int | None, int | None]:
    """The output length that the sender expects, tokens: `out_hint` is a number or [low, high]."""
    params = request.sampling_params
    hint = (params.extra_args or {}).get("out_hint") if params is not None else None
    if hint is None:
        return None, None
    pair = hint if isinstance(hint, (list, tuple)) and len(hint) == 2 else (hint, hint)
    try:
        low, high = (int(bound) for bound in pair)
    except (TypeError, ValueError, OverflowError):
        low = high = -1
    if not 0 <= low <= high:
        logger.warning("request %s: out_hint %r is no output length: taken as unknown", request.request_id, hint)
        return None, None
    return low, high


def read_setup(vllm_config: Any) -> dict[str, Any]:
    """`bench_policy` of --additional-config, checked; PolicyError says what is wrong."""
    additional = vllm_config.additional_config
    setup = additional.get("bench_policy") if isinstance(additional, dict) else None
    if not isinstance(setup, dict) or not isinstance(setup.get("name"), str):
        raise PolicyError(
            "PolicyScheduler needs to know its policy: "
            '--additional-config \'{"bench_policy": {"name": "eb", "options": {"k": "32"}}}\''
        )
    unknown = sorted(setup.keys() - {"name", "options", "costs", "step_log"})
    if unknown:
        raise PolicyError(f"bench_policy: unknown key {unknown[0]!r}: it has name, options, costs, step_log")
    options = setup.get("options") or {}
    if not isinstance(options, dict):
        raise PolicyError(f"bench_policy: options is {options!r}: it must be names and values")
    costs = setup.get("costs")
    if costs is not None:
        names = [field.name for field in fields(StepCosts)]
        if not isinstance(costs, dict) or sorted(costs) != sorted(names):
            raise PolicyError(f"bench_policy: costs must have {', '.join(names)}")
        costs = StepCosts(**{name: float(costs[name]) for name in names})
    return {
        "name": setup["name"],
        "options": {str(key): str(value) for key, value in options.items()},
        "costs": costs,
        "step_log": setup.get("step_log"),
    }


def check_engine(scheduler: Any) -> None:
    """PolicyError where this engine has what the policies do not know, or lacks what they stand on."""
    known = f"vLLM {vllm.__version__} has no"
    remedy = "the policies know vLLM 0.24 to 0.33; install one of these"
    for name in (*SCHEDULER_NAMES, *SCHEDULER_METHODS):
        if not hasattr(scheduler, name):
            raise PolicyError(f"{known} Scheduler.{name}: {remedy}")
    if not any(hasattr(scheduler, name) for name in ADMISSION_LIMITS):
        raise PolicyError(f"{known} Scheduler.{' or Scheduler.'.join(ADMISSION_LIMITS)}: {remedy}")
    pool = getattr(scheduler.kv_cache_manager, "block_pool", None)
    for name in ("get_num_free_blocks", "num_gpu_blocks"):
        if not hasattr(pool, name):
            raise PolicyError(f"{known} KVCacheManager.block_pool.{name}: {remedy}")
    # A request's attributes are set when it is made.
    set_names = Request.__init__.__code__.co_names
    for name in REQUEST_NAMES:
        if name not in set_names:
            raise PolicyError(f"{known} Request.{name}: {remedy}")

    config, settings = scheduler.vllm_config, scheduler.vllm_config.scheduler_config
    interval = getattr(settings, "prefill_schedule_interval", 1)
    if interval != 1:
        raise PolicyError(f"prefill_schedule_interval is {interval}: with a policy of ours it must be 1")
    if not getattr(settings, "scheduler_reserve_full_isl", True):
        raise PolicyError("scheduler_reserve_full_isl is off: a whole prompt must fit when it is admitted; leave it on")
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    for there, what in (
        (config.speculative_config is not None, "speculative decoding"),
        (config.kv_transfer_config is not None, "a KV connector"),
        (getattr(config, "ec_transfer_config", None) is not None, "an encoder-cache connector"),
        (config.parallel_config.pipeline_parallel_size > 1, "pipeline parallelism"),
        (config.parallel_config.data_parallel_size > 1, "data parallelism"),
        (groups != 1, f"{groups} groups of KV caches (a hybrid model)"),
        (settings.policy != "fcfs", f"--scheduling-policy {settings.policy}"),
    ):
        if there:
            raise PolicyError(f"the policies do not know {what}: start the engine without it")


def open_log(path: str, scheduler: PolicyScheduler) -> StepLog:
    """The step log with a header that says what engine and policy wrote it."""
    view, config = scheduler.view, scheduler.vllm_config
    header = {
        "vllm": vllm.__version__,
        "scheduler": f"{type(scheduler).__module__}.{type(scheduler).__qualname__}",
        "async": bool(config.scheduler_config.async_scheduling),
        "policy": scheduler.policy_name,
        "slots": view.slots,
        "token_budget": view.token_budget,
        "blocks": view.total_blocks,
        "block_size": view.block_size,
        "watermark_blocks": view.watermark_blocks,
        "max_model_len": scheduler.max_model_len,
        "prefix_caching": bool(config.cache_config.enable_prefix_caching),
        "monotonic_ns": time.monotonic_ns(),
        "unix_ns": time.time_ns(),
    }
    try:
        return StepLog(Path(path), header)
    except OSError as error:
        raise PolicyError(f"step log {path}: {error.strerror}: name a new file in a folder that is there") from error
