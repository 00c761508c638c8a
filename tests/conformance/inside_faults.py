"""What goes wrong beside vLLM: a fault names policy and step, nothing spins, a log that cannot be written is told."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from policies.core import DECODE, MIXED, Phase, PolicyError, PolicyFault, StepPlan, View, WaitingRequest
from policies.online.mixed import Mixed
from policies.vllm_emulated import Replay, make_scheduler
from tests.support.inside_vllm import BASE, Erratic, LongestFirst, a_job, fails, using, watched


def it_names_policy_and_step_of_a_fault() -> None:
    class Faulty(Mixed):
        steps = 0

        def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
            self.steps += 1

        def plan(self, view: View) -> StepPlan:
            if self.steps == 7:
                raise ZeroDivisionError("division by zero")
            return MIXED

    told = fails(PolicyFault, lambda: watched(Faulty(), a_job(1)))
    assert told == "policy v1 failed at step 7 in plan: ZeroDivisionError: division by zero", told

    class Deaf(Mixed):
        def on_admit(self, prompt_tokens: int, /) -> None:
            raise KeyError("k")

    told = fails(PolicyFault, lambda: watched(Deaf(), a_job(1)))
    assert told.startswith("policy v1 failed at step 0 when told of it: KeyError"), told

    class Broken(LongestFirst):
        def peek(self, view: View) -> WaitingRequest | None:
            raise IndexError("empty")

    told = fails(PolicyFault, lambda: watched(Mixed(Broken()), a_job(1)))
    assert told == "policy v1 failed at step 0 in order.peek: IndexError: empty", told


def it_does_not_spin() -> None:
    class Idle(Mixed):
        def plan(self, view: View) -> StepPlan:
            return DECODE

    told = fails(PolicyFault, lambda: watched(Idle(), a_job(1)))
    assert "requests back at step 0 while nothing can decode" in told, told


def it_puts_the_view_back_after_a_failure() -> None:
    with using(Erratic(random.Random(0))):
        scheduler = make_scheduler(BASE, a_job(2))
    run = Replay(a_job(2), scheduler, lambda _: None, lambda: 1)
    for row in range(20):
        run.send(row, 0)
    for _ in range(3):
        output = scheduler.schedule()
        run.apply(output, scheduler.view.partly_prefilled.keys() & output.num_scheduled_tokens.keys())
    names = [request.request_id for request in scheduler.running]
    assert len(names) > 1
    stock = scheduler.kv_cache_manager.allocate_slots
    scheduler.kv_cache_manager.allocate_slots = None
    scheduler.asked.policy.plan = lambda _: StepPlan(Phase.PREFILL, 1)
    fails(TypeError, scheduler.schedule)
    scheduler.kv_cache_manager.allocate_slots = stock
    assert [request.request_id for request in scheduler.running] == names
    assert scheduler.max_num_active_reqs == scheduler.view.slots == 12


def it_writes_no_log_where_it_cannot() -> None:
    with tempfile.TemporaryDirectory() as folder:
        missing = Path(folder) / "none" / "steps.bin"
        told = fails(PolicyError, lambda: make_scheduler(BASE, a_job(1, step_log=str(missing))))
        assert told == f"step log {missing}: No such file or directory: name a new file in a folder that is there", told
        there = Path(folder) / "steps.bin"
        there.touch()
        assert "File exists" in fails(PolicyError, lambda: make_scheduler(BASE, a_job(1, step_log=str(there))))


def it_fails_when_the_log_cannot_be_written_any_more() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scheduler = make_scheduler(BASE, a_job(1, step_log=str(Path(folder) / "steps.bin")))
        scheduler.rows.log.fault = OSError(28, "No space left on device")
        assert "No space left on device" in fails(PolicyFault, scheduler.schedule)
        scheduler.shutdown()
