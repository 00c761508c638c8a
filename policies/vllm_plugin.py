"""Our policies inside vLLM: one scheduler class, loaded by name, for every policy of the catalog.

    vllm serve MODEL --scheduler-cls policies.vllm_plugin.PolicyScheduler --additional-config
        '{"bench_policy": {"name": "eb", "options": {"k": "32"}, "costs": null, "step_log": "/path/steps.bin"}}'

`options` are strings as in policies/catalog.py, `costs` the fields of StepCosts or null, `step_log` may be left
out. With `"file": "/path/mine.py"` the name is that of a class in it (policies/own). Allocation stays vLLM's own
(policies/plugin/narrow.py).
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import vllm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request, RequestStatus

from policies.catalog import canonical_policy, make_policy
from policies.core import MIXED, Policy, PolicyError, PolicyFault
from policies.own.file import read_file
from policies.own.load import canonical_own, make_own
from policies.plugin.asked import AskedPolicy
from policies.plugin.narrow import Narrowing
from policies.plugin.queue import OrderedQueue
from policies.plugin.requirements import admission_limit, check_names, check_queue, check_settings
from policies.plugin.setup import Setup, read_setup
from policies.plugin.step_book import StepBook
from policies.plugin.step_log import ABORT, PREEMPTION, StepLog
from policies.plugin.step_rows import StepRows
from policies.plugin.view import EngineView
from policies.timed import TimedSteps

logger = logging.getLogger(__name__)

COMPLETED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)

RequestQueue.register(OrderedQueue)


class PolicyScheduler(AsyncScheduler):
    """vLLM's scheduler asking a policy of ours before each step, and writing down what each step was."""

    running: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        setup = read_setup(self.vllm_config)
        check_names(self, Request, vllm.__version__)
        check_settings(self)
        slots: int = getattr(self, admission_limit(self))
        name, policy = policy_of(setup, slots)
        self.asked = AskedPolicy(name, policy)
        self.rows = StepRows()
        if self.asked.hears_time:
            self.rows.timed = TimedSteps()
            self.asked.tell_of_time = self.rows.tell_of_time
        self.view = EngineView(self, slots, self.rows, setup.ttft_s)
        self.book = StepBook(self.asked, self.view, self.rows)
        self.narrowing = Narrowing(self, super().schedule, slots, self.view.partly_prefilled)
        self.ordered: OrderedQueue | None = None
        order = self.asked.policy.order
        if order is not None:
            check_queue(OrderedQueue, RequestQueue, vllm.__version__)
            self.waiting = self.ordered = OrderedQueue(order, self.asked, self.view, self.view.times)
        if setup.step_log is not None:
            self.rows.log = open_log(setup.step_log, self)
        logger.info("policy %s, step log %s", name, setup.step_log)

    @property
    def steps(self) -> int:
        """Steps scheduled so far, empty ones left out."""
        return self.asked.steps

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """A step as the policy plans it."""
        book, view, log = self.book, self.view, self.rows.log
        begun = book.clock()
        if log is not None and log.fault is not None:
            raise PolicyFault(f"the step log cannot be written any more: {log.fault}")
        held = len(self.running)
        view.look(held, begun - book.origin_ns)
        if held or view.waiting:
            plan = self.asked.plan(view, view.now_ns)
        else:
            # vLLM asks for a step here too, to tell its workers who has ended.
            self.asked.tell_of_ends()
            plan = MIXED
        book.preempted = 0
        output = self.narrowing.schedule(plan, args, kwargs)
        if output.num_scheduled_tokens:
            book.scheduled(begun, output.num_scheduled_tokens, self.running, held)
        elif not self.running and view.waiting:
            held_back = self.ordered is not None and self.ordered.held_back()
            seconds = self.asked.hold(plan, view.waiting, held_back, view.now_ns)
            if seconds:
                book.sleep(seconds)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The step's tokens have come."""
        if scheduler_output.num_scheduled_tokens:
            self.book.came()
        return super().update_from_output(scheduler_output, model_runner_output)

    def add_request(self, request: Request) -> None:
        """Writes down the arrival."""
        if request.request_id not in self.requests:
            self.book.arrived(request)
        super().add_request(request)

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self.book.preempted += 1
        num_output_tokens = len(request._output_token_ids) + request.num_output_placeholders
        if self.ordered is not None:
            self.ordered.num_output_tokens = num_output_tokens
        result = super()._preempt_request(request, *args, **kwargs)
        if self.ordered is not None:
            self.ordered.num_output_tokens = None
        self.book.left(PREEMPTION, request, num_output_tokens)
        return result

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        if request.status in COMPLETED:
            self.book.completed(request)
        else:
            self.book.left(ABORT, request, len(request._output_token_ids))
        return super()._free_request(request, *args, **kwargs)

    def shutdown(self) -> None:
        """Writes the last steps out."""
        super().shutdown()
        if self.rows.log is not None:
            self.rows.log.close()


def policy_of(setup: Setup, slots: int) -> tuple[str, Policy]:
    """The policy that the setup names, the catalog's or that of a file, and its canonical name."""
    if setup.file is None:
        name = canonical_policy(setup.name, setup.options)
        return name, make_policy(setup.name, setup.options, slots, setup.costs)
    file = read_file(setup.file, setup.name.partition("@")[0])
    if setup.sha256 is not None and file.sha256 != setup.sha256:
        raise PolicyError(f"{setup.file}: holds another policy than the one asked for (sha256): run again")
    return canonical_own(file, setup.options), make_own(file, setup.options, slots, setup.costs)


def open_log(path: str, scheduler: PolicyScheduler) -> StepLog:
    """The step log with a header that says what engine and policy wrote it."""
    view, config = scheduler.view, scheduler.vllm_config
    header = {
        "vllm": vllm.__version__,
        "scheduler": f"{type(scheduler).__module__}.{type(scheduler).__qualname__}",
        "async": bool(config.scheduler_config.async_scheduling),
        "policy": scheduler.asked.name,
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
        return StepLog(Path(path), header, scheduler.rows.catch_up)
    except OSError as error:
        raise PolicyError(f"step log {path}: {error.strerror}: name a new file in a folder that is there") from error
