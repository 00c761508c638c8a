"""The token-step model as an engine: an offline schedule of all requests, a row a token-step."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from harness import __version__
from harness.core.errors import UserError
from harness.core.records import FINISHES, PHASES, REQUESTS, STEPS, to_batch, to_names
from harness.core.runspec import RunSpec
from harness.engines.base import Ended, Progress, Status, Stopped
from harness.runs.writer import RunWriter
from harness.simulate.rows import trace_columns
from harness.simulate.token_steps import Segments, StepTime, blocks, segments_of, totals_of
from policies.catalog import read_policy
from policies.offline.catalog import canonical_offline, offline_options, plan_offline
from workloads.core import options
from workloads.core.arrivals import LONGEST_S
from workloads.core.options import Option
from workloads.core.stream import Stream
from workloads.core.trace import Ints, Trace

STEPS_AT_ONCE = 1 << 17

# Fields of the spec that say nothing here.
MEANINGLESS = (
    "kv_tokens",
    "watermark",
    "max_duration_s",
    "token_budget",
    "block_size",
    "max_model_len",
    "sessions",
    "prefix_caching",
    "tp",
    "host",
    "policy_costs",
)

# The paper's cost of a step (its c and τ, fitted to its Table 1), read as seconds.
COST = (
    Option("c", float, 5e-4, "s a step", 0),
    Option("tau", float, 1e-6, "s a request and token of the longest: τ·n·max r", 0),
    Option("k", float, 0.0, "s a token of the longest: k·max r", 0),
)


class TokenStep:
    """One run of the token-step model, ready to go; raises UserError and PolicyError for what the user can mend."""

    kind = "simulated"
    policy_file = None

    def __init__(self, spec: RunSpec, stream: Stream) -> None:
        _refuse(spec)
        self.spec = spec
        self.stream = stream
        self.policy = read_policy(spec.policy)
        offline_options(*self.policy)
        self.step_time = read_cost(spec.cost_model)

    @property
    def notes(self) -> list[str]:
        """What the model is, and what it is not."""
        cost = self.step_time
        terms = [f"{cost.c:g} s"]
        terms += [f"{cost.tau:g} s · requests · longest progress"] if cost.tau else []
        terms += [f"{cost.k:g} s · longest progress"] if cost.k else []
        notes = [
            "token-step model: every request waits at the start, prompts cost nothing; gpu and model are labels. Never "
            "comparable to another engine",
            f"a step takes {' + '.join(terms)}",
        ]
        if self.policy[0] == "isjl-paper" and not offline_options(*self.policy)["hold"]:
            notes.append("isjl-paper without hold=true may exceed alpha: the reconstruction has this fault")
        return notes

    @property
    def degraded(self) -> list[str]:
        """Nothing: the model is exact."""
        return []

    def provenance(self) -> dict[str, Any]:
        """Engine, how lengths are known, and the cost of a step."""
        cost = self.step_time
        return {
            "engine": "token-step model",
            "engine_version": f"schedbench {__version__}",
            "policy_class": canonical_offline(*self.policy),
            "cost_model": {
                "name": "tokenstep",
                "basis": "assumed",
                "parameters": {"c": cost.c, "tau": cost.tau, "k": cost.k},
            },
        }

    def replay(self, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Plans all requests and writes the steps; `stopped` is asked between blocks of steps."""
        trace = self.stream.trace
        lengths = trace.output_tokens
        starts = np.array(plan_offline(*self.policy, lengths.tolist(), self.spec.slots), dtype=np.int64)
        segments = segments_of(starts, lengths, trace.prompt_tokens, self.spec.slots)
        totals_of(segments, lengths)
        # Requests in the order of their first token, and in that of their last.
        by_start, by_end = np.argsort(starts, kind="stable"), np.argsort(starts + lengths, kind="stable")
        first_steps, last_steps = starts[by_start], (starts + lengths)[by_end] - 1
        first_ns = np.zeros(len(trace), dtype=np.int64)
        now_ns = finished = output_tokens = 0
        for t, place in blocks(segments, STEPS_AT_ONCE):
            if stopped():
                return Ended("interrupted", "interrupted by the user")
            n, most = segments.n[place], t + 1 - segments.start_min[place]
            if now_ns / 1e9 + self.step_time.seconds(n, most).sum() > LONGEST_S:
                raise UserError(
                    f"--cost-model {self.spec.cost_model}: the run takes more than the {LONGEST_S:g} s "
                    "that can be told to the nanosecond: lower c, tau and k"
                )
            duration = self.step_time.nanoseconds(n, most)
            ends = now_ns + np.cumsum(duration)
            writer.add_steps(_steps(segments, t, place, ends - duration, duration, len(trace)))
            starting = slice(*np.searchsorted(first_steps, (t[0], t[-1] + 1)))
            first_ns[by_start[starting]] = ends[first_steps[starting] - t[0]]
            ending = slice(*np.searchsorted(last_steps, (t[0], t[-1] + 1)))
            if ending.start < ending.stop:
                rows = by_end[ending]
                writer.add_requests(_requests(trace, rows, first_ns[rows], ends[last_steps[ending] - t[0]]))
                output_tokens += int(lengths[rows].sum())
            now_ns, finished = int(ends[-1]), int(ending.stop)
            progress(Status(finished, now_ns / 1e9, output_tokens))
        return Ended()


def read_cost(text: str) -> StepTime:
    """The step time of `auto`, `tokenstep` or `tokenstep:c=…,tau=…,k=…`; UserError or WorkloadError otherwise."""
    name, given = options.split(text)
    if name not in ("auto", "tokenstep"):
        raise UserError(
            f"--cost-model {name}: the token-step model has its own: leave it out, or tokenstep:c=0.0005,tau=1e-6"
        )
    return StepTime(**options.read("cost model tokenstep", COST, given))


def _refuse(spec: RunSpec) -> None:
    """UserError for what only an engine with time, memory and chunked prompts can do."""
    if spec.arrival != "offline":
        raise UserError(
            "--engine tokenstep plans offline, all requests at once: leave out --rate, --arrival and --concurrency"
        )
    for field in dataclasses.fields(spec):
        if field.name in MEANINGLESS and getattr(spec, field.name) != field.default:
            option = "--" + field.name.removesuffix("_s").replace("_", "-")
            raise UserError(f"{option} has no meaning in the token-step model, which has slots alone: leave it out")


def _steps(segments: Segments, t: Ints, place: Ints, start_ns: Ints, duration_ns: Ints, total: int) -> Any:
    n, after = segments.n[place], t + 1
    footprint = segments.base_sum[place] + n * after
    values: dict[str, object] = dict.fromkeys(STEPS.names)
    zeros = np.zeros(len(t), dtype=np.int64)
    values |= {
        "t_s": start_ns / 1e9,
        "duration_s": duration_ns / 1e9,
        "phase": to_names(zeros + PHASES.index("decode"), PHASES),
        "prefill_tokens": zeros,
        "decode_requests": n,
        "running": n,
        "waiting": total - segments.started[place],
        "preempted": zeros,
        "kv_tokens": footprint,
        "producing": n,
        "generated_sum": n * after - segments.start_sum[place],
        "generated_min": after - segments.start_max[place],
        "generated_max": after - segments.start_min[place],
        "footprint_sum": footprint,
        "footprint_min": segments.base_min[place] + after,
        "footprint_max": segments.base_max[place] + after,
    }
    return to_batch(values, STEPS, len(t))


def _requests(trace: Trace, rows: Ints, first_ns: Ints, last_ns: Ints) -> Any:
    zeros = np.zeros(len(rows), dtype=np.int64)
    values = dict.fromkeys(REQUESTS.names) | trace_columns(trace, rows)
    values |= {
        "due_s": zeros / 1e9,
        "sent_s": zeros / 1e9,
        "first_token_s": first_ns / 1e9,
        "last_token_s": last_ns / 1e9,
        "done_s": last_ns / 1e9,
        "output_tokens": trace.output_tokens[rows],
        "preemptions": zeros,
        "finish": to_names(zeros + FINISHES.index("length"), FINISHES),
    }
    return to_batch(values, REQUESTS, len(rows))
