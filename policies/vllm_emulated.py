"""vLLM's own scheduler in virtual time, without a model: one process that replays one job after another.

    PYTHONPATH=… ENGINE_PYTHON -m policies.vllm_emulated     # jobs on stdin, answers on stdout, a JSON object a line

It first says {"ready": {"vllm": "0.32.0"}}, then takes jobs until stdin ends:

    {"prompt": [tokens…], "output": [tokens…], "hints": [n | [low, high] | null…] | absent,
     one of "due_ns": [ascending…] | "concurrency": c | "arrival_steps": [ascending…],
     "limits": {"slots", "token_budget", "kv_blocks", "block_size", "max_model_len", "watermark"},
     "policy": {"name", "options", "costs"}, "async": false,
     "cost": n (ns a step) | "ask", "step_log": PATH | absent, "last_send_ns": n | absent,
     "next_turn": [row | -1…] and "think_ns": n | absent, "tokens": [[ids of prompt and answer…]…] | absent}

and answers, in order of virtual time:

    {"step": [prefill_tokens, prefill_work, decodes, context, longest]}     with "cost": "ask": the parent answers
                                                      with the step's duration in ns, alone on a line
    {"end": [row, due, first, last, done, output_tokens, preemptions, finish, times]}    a request ended, ns;
                                                      finish is "length" or "too_long" (first and last are then -1);
                                                      times: of its tokens, null where it was never preempted
    {"done": {"now_ns", "steps", "sent"}}             the job is over
    {"error": "one line"}                             the job cannot be done, or failed; the next may come

With "next_turn" the rows are turns of conversations: a row that another names is due think_ns after that one's end,
the others when "due_ns" says, or "concurrency" counts conversations. With "tokens" vLLM's prefix cache is on, and the
model answers what stands there. A parent that wants to stop early answers a "step" with -1. `arrival_steps` counts
steps with content: request r joins before step arrival_steps[r] is scheduled (with nothing to do, the count jumps to
the next arrival).
With "async" the output of step i is applied after step i + 1 was scheduled, as vLLM does it on a GPU.
"""

from __future__ import annotations

import copy
import gc
import heapq
import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

NEVER = 1 << 62

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 32,
    "max_position_embeddings": 1 << 24,
    "torch_dtype": "bfloat16",
}


def engine_config() -> Any:
    """A VllmConfig from a model's config.json alone; each job works on a copy."""
    from vllm.engine.arg_utils import EngineArgs

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL))
        return EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            load_format="dummy",
            max_model_len=4096,
            enable_prefix_caching=False,
            scheduler_cls="policies.vllm_plugin.PolicyScheduler",
        ).create_engine_config()


def make_scheduler(base: Any, job: dict[str, Any], cls: Any = None) -> Any:
    """The scheduler of a job: a PolicyScheduler, or one of the class given."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    from policies.vllm_plugin import PolicyScheduler

    limits = job["limits"]
    config = copy.deepcopy(base)
    config.model_config.max_model_len = limits["max_model_len"]
    config.cache_config.block_size = limits["block_size"]
    config.cache_config.num_gpu_blocks = limits["kv_blocks"]
    config.cache_config.enable_prefix_caching = "tokens" in job
    settings = config.scheduler_config
    settings.max_num_seqs = limits["slots"]
    settings.max_num_batched_tokens = limits["token_budget"]
    settings.max_num_scheduled_tokens = None
    settings.watermark = limits.get("watermark", 0.0)
    settings.async_scheduling = job.get("async", False)
    config.additional_config = {"bench_policy": {**job["policy"], "step_log": job.get("step_log")}}
    spec = FullAttentionSpec(
        block_size=limits["block_size"], num_kv_heads=1, head_size=64, dtype=torch.bfloat16, head_size_v=64
    )
    kv_cache = KVCacheConfig(
        num_blocks=limits["kv_blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return (cls or PolicyScheduler)(
        vllm_config=config,
        kv_cache_config=kv_cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=limits["block_size"],
    )


class Stopped(Exception):
    """The parent wants no more of this job."""


def make_hasher(block_size: int) -> Any:
    """What gives a request the hashes of its full blocks, as the engine core makes it."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    init_none_hash(sha256)
    return get_request_block_hasher(block_size, sha256)


class Replay:
    """One job: requests due by now join, the scheduler schedules, a step takes what it costs, tokens come."""

    def __init__(self, job: dict[str, Any], scheduler: Any, say: Callable[[Any], None], cost: Callable[[], int]):
        self.job = job
        self.scheduler = scheduler
        self.say = say
        self.cost = cost
        self.now = 0
        self.sent = self.ended = 0
        self.skipped = 0  # steps that an idle engine let pass
        self.requests: dict[str, Any] = {}
        self.due: dict[str, int] = {}
        self.times: dict[str, list[int]] = {}
        limits = job["limits"]
        self.longest = min(limits["max_model_len"], (limits["kv_blocks"] - 1) * limits["block_size"])
        self.last_send: int = job.get("last_send_ns", NEVER)
        self.hasher = make_hasher(limits["block_size"]) if "tokens" in job else None
        self.next_turn: list[int] = job.get("next_turn", [])
        later = set(self.next_turn)
        self.heads = [row for row in range(len(job["prompt"])) if row not in later]
        self.begun = 0  # of the heads
        self.under_way = 0  # conversations that have begun and not ended, or requests
        self.later: list[tuple[int, int]] = []  # turns that wait for their time, a heap of (due, row)
        book = scheduler.book
        book.clock = lambda: self.now
        book.origin_ns = 0
        book.due_ns = lambda request_id, _: self.due[request_id]
        book.sleep = self.hold
        self.held_until = 0

    def run(self) -> None:
        """Replays all requests, step by step, until the last has ended."""
        scheduler = self.scheduler
        depth = 2 if self.job.get("async", False) else 1
        # Scheduled steps whose output has not been applied: whose prompts they leave incomplete, and when they end.
        in_flight: deque[tuple[Any, set[str], int]] = deque()
        empty = 0
        while True:
            self.arrive(bool(in_flight))
            if scheduler.has_requests():
                output = scheduler.schedule()
                end = in_flight[-1][2] if in_flight else self.now
                if output.num_scheduled_tokens:
                    end += self.cost()
                    empty = 0
                elif self.held_until > self.now:
                    # Time goes on until the policy wants to be asked again, or somebody comes.
                    end = max(end, min(self.held_until, self.next_request()[0]))
                    self.held_until = 0
                else:
                    empty += 1
                    if empty > 2 * depth:
                        raise RuntimeError(f"the scheduler stalls at step {scheduler.steps}: nothing to schedule")
                incomplete = scheduler.view.partly_prefilled.keys() & output.num_scheduled_tokens.keys()
                in_flight.append((output, incomplete, end))
                if len(in_flight) < depth:
                    continue
            elif not in_flight:
                return
            output, incomplete, self.now = in_flight.popleft()
            self.apply(output, incomplete)

    def hold(self, seconds: float) -> None:
        """The policy holds all back for so long."""
        self.held_until = self.now + round(seconds * 1e9)

    def arrive(self, busy: bool) -> None:
        """Sends what is due; with nothing to do time goes on to the next that is."""
        while self.later or self.begun < len(self.heads):
            due, row = self.next_request()
            if due > self.now:
                if busy or self.scheduler.has_requests() or due >= NEVER or due > self.last_send:
                    return
                if "arrival_steps" not in self.job:
                    self.now = due
                else:
                    self.skipped += self.job["arrival_steps"][self.sent] - self.scheduler.steps - self.skipped
                continue
            if due > self.last_send:
                return
            if self.later and self.later[0] == (due, row):
                heapq.heappop(self.later)
            else:
                self.begun += 1
                self.under_way += 1
            self.sent += 1
            self.send(row, due)

    def next_request(self) -> tuple[int, int]:
        """When the next request is due, and its row; of two due at once the later turn of a conversation."""
        head = (NEVER, -1)
        if self.begun < len(self.heads):
            head = (self.due_of_head(), self.heads[self.begun])
        return self.later[0] if self.later and self.later[0][0] <= head[0] else head

    def due_of_head(self) -> int:
        """When the next request that waits for no other is due: `now` with the present state, later where not, ns."""
        if "due_ns" in self.job:
            return int(self.job["due_ns"][self.heads[self.begun]])
        if "arrival_steps" in self.job:
            here = self.scheduler.steps + self.skipped
            return self.now if self.job["arrival_steps"][self.sent] <= here else self.now + 1
        return self.now if self.under_way < self.job["concurrency"] else NEVER

    def follow(self, row: int, end: int) -> None:
        """A request has ended: the next turn of its conversation is due after the time to think."""
        self.ended += 1
        turn = self.next_turn[row] if self.next_turn else -1
        if turn < 0:
            self.under_way -= 1
        else:
            heapq.heappush(self.later, (end + int(self.job["think_ns"]), turn))

    def send(self, row: int, due: int) -> None:
        """Hands a request to the scheduler, or refuses what can never fit as vLLM's front end does."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        prompt, output = self.job["prompt"][row], self.job["output"][row]
        if prompt + output > self.longest:
            self.follow(row, due)
            self.say({"end": [row, due, -1, -1, due, 0, 0, "too_long", None]})
            return
        hint = self.job["hints"][row] if "hints" in self.job else None
        params = SamplingParams(
            max_tokens=output, ignore_eos=True, extra_args=None if hint is None else {"out_hint": hint}
        )
        request_id = str(row)
        self.due[request_id] = due
        self.times[request_id] = []
        ids = self.job["tokens"][row][:prompt] if "tokens" in self.job else [0] * prompt
        request = self.requests[request_id] = Request(
            request_id, ids, params, None, arrival_time=due / 1e9, block_hasher=self.hasher
        )
        self.scheduler.add_request(request)

    def apply(self, output: Any, incomplete: set[str]) -> None:
        """The step's tokens come: one for each request whose prompt it does not leave incomplete."""
        from vllm.v1.outputs import ModelRunnerOutput

        ids = list(output.num_scheduled_tokens)
        tokens: list[list[int]] = [[] if request_id in incomplete else [self.answer(request_id)] for request_id in ids]
        result = ModelRunnerOutput(ids, {request_id: i for i, request_id in enumerate(ids)}, tokens)
        now, times = self.now, self.times
        for outputs in self.scheduler.update_from_output(output, result).values():
            for new in outputs.outputs:
                if new.new_token_ids:
                    times[new.request_id].append(now)
                    if new.finish_reason is not None:
                        self.end(new.request_id)

    def answer(self, request_id: str) -> int:
        """The id of a request's next token."""
        if "tokens" not in self.job:
            return 1
        row = int(request_id)
        return int(self.job["tokens"][row][self.job["prompt"][row] + len(self.times[request_id])])

    def end(self, request_id: str) -> None:
        """A request has all its tokens."""
        row = int(request_id)
        self.follow(row, self.now)
        preemptions = self.requests.pop(request_id).num_preemptions
        times = self.times.pop(request_id)
        ended = [row, self.due.pop(request_id), times[0], times[-1], self.now, len(times), preemptions, "length"]
        self.say({"end": [*ended, times if preemptions else None]})


def replay(base: Any, job: dict[str, Any], say: Callable[[Any], None], answers: TextIO) -> None:
    """Does one job, from its requests to its "done"; a parent that wants no more ends it early."""
    scheduler = make_scheduler(base, job)

    def ask_parent() -> int:
        scheduler.rows.catch_up()
        say({"step": scheduler.rows.content})
        duration = int(answers.readline() or -1)
        if duration < 0:
            raise Stopped
        return duration

    def constant_cost() -> int:
        return int(job["cost"])

    run = Replay(job, scheduler, say, ask_parent if job["cost"] == "ask" else constant_cost)
    try:
        run.run()
    except Stopped:
        pass
    finally:
        scheduler.shutdown()
    say({"done": {"now_ns": run.now, "steps": scheduler.steps, "sent": run.sent}})


def main() -> None:
    """Serves jobs until stdin ends."""
    # vLLM writes to stdout as it likes: the answers keep it to themselves, the rest goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        if "end" not in value:
            answers.flush()

    base = engine_config()
    import vllm

    # As vLLM's engine does it: what has been made so far is no garbage.
    gc.collect()
    gc.freeze()

    say({"ready": {"vllm": vllm.__version__}})
    while line := sys.stdin.readline():
        try:
            replay(base, json.loads(line), say, sys.stdin)
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
