"""One run: stream → engine → records → summary → directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness import __version__
from harness.engines.simulated import Progress, simulate
from harness.errors import RunFailed, UserError
from harness.plan import read_policy
from harness.profiles import Pair, load_pair
from harness.provenance import collect
from harness.runs import Run, load_run
from harness.runspec import RunSpec
from harness.simulate.batch import EngineLimits
from harness.store import RunWriter
from policies.catalog import make_policy
from policies.core import Policy
from policies.threshold import StepCosts
from workloads import options
from workloads.arrivals import Stream, parse_arrival, schedule
from workloads.catalog import load_workload
from workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that has everything it needs and has not begun."""

    spec: RunSpec
    pair: Pair
    stream: Stream
    policy: Policy
    costs: StepCosts | None


def prepare(spec: RunSpec) -> Prepared:
    """Loads what the run needs; whatever the user can mend is raised here, before anything runs."""
    pair = load_pair(spec.gpu, spec.model)
    trace = _trace(spec.workload, spec.requests, spec.seed, spec.model)
    stream = schedule(parse_arrival(spec.arrival), trace, spec.seed)
    name, given = read_policy(spec.policy)
    costs = pair.policy_constants(trace.mean_prompt_tokens, trace.mean_output_tokens, spec.token_budget)
    policy = make_policy(name, given, spec.slots, costs)
    pair.cost(spec.cost_model)
    return Prepared(spec, pair, stream, policy, costs)


def run(
    prepared: Prepared,
    out: Path,
    argv: Sequence[str],
    progress: Progress,
    stopped: Callable[[], bool],
) -> Run:
    """Replays the stream on the virtual-time engine and returns the finished run.

    The directory says how it went; a run that `stopped` cut short is `interrupted`. Raises UserError where
    `out` cannot be written, RunFailed where the run broke (its directory keeps what was recorded).
    """
    spec = prepared.spec
    cost = prepared.pair.cost(spec.cost_model)
    limits = limits_of(spec, prepared.pair)
    writer = RunWriter.create(
        out,
        spec,
        kind="simulated",
        provenance=collect(argv) | provenance_of(prepared, limits),
        planned_requests=len(prepared.stream.trace),
        notes=notes_of(prepared),
        degraded=list(prepared.pair.degraded),
    )
    try:
        whole, sent = simulate(
            prepared.stream, prepared.policy, cost, limits, writer, progress, stopped, spec.max_duration_s
        )
    except RunFailed:
        raise
    except KeyboardInterrupt:
        writer.close()
        raise UserError(
            f"{writer.partial}: cut off at once; `bench recover {writer.partial}` makes it readable"
        ) from None
    except BaseException as error:
        with contextlib.suppress(RunFailed):
            writer.finish("failed", f"{type(error).__name__}: {error}")
        raise
    if not whole:
        return load_run(writer.finish("interrupted", "interrupted by the user"))
    observed = {"planned": {"requests": sent}} if spec.max_duration_s is not None else None
    return load_run(writer.finish(observed=observed))


def limits_of(spec: RunSpec, pair: Pair) -> EngineLimits:
    """What the engine may use: as the spec says, and where it is silent as the profile does."""
    kv_tokens = pair.kv_tokens if spec.kv_tokens is None else spec.kv_tokens
    if kv_tokens < 2 * spec.block_size:
        raise UserError(f"--kv-tokens {kv_tokens} holds no request: give at least {2 * spec.block_size}")
    return EngineLimits(
        slots=spec.slots,
        token_budget=spec.token_budget,
        kv_blocks=kv_tokens // spec.block_size,
        block_size=spec.block_size,
        max_model_len=spec.max_model_len,
        watermark=spec.watermark,
    )


def provenance_of(prepared: Prepared, limits: EngineLimits) -> dict[str, Any]:
    """What a reader needs to trust the numbers or to make them again."""
    spec, pair, trace = prepared.spec, prepared.pair, prepared.stream.trace
    cost = pair.cost(spec.cost_model)
    return {
        "engine": "virtual-time batch loop",
        "engine_version": f"schedbench {__version__}",
        "policy_class": type(prepared.policy).__name__,
        "cost_model": {"name": cost.name, "basis": basis_of(prepared), "parameters": cost.parameters()},
        "policy_constants": None
        if prepared.costs is None
        else {name: getattr(prepared.costs, name) for name in StepCosts.__slots__},
        "profile": pair.to_manifest(),
        "kv_blocks": limits.kv_blocks,
        "trace": trace.source,
        "trace_label": trace.label,
        "trace_digest": trace.digest,
        "stream_digest": prepared.stream.digest,
    }


def basis_of(prepared: Prepared) -> str:
    """How the cost of a step is known: calibrated, published or derived (a roofline is always derived)."""
    cost = prepared.pair.cost(prepared.spec.cost_model)
    return "derived" if cost.name == "roofline" else prepared.pair.basis


def notes_of(prepared: Prepared) -> list[str]:
    """What the terminal and the manifest both say about this run."""
    source = prepared.stream.trace.source
    return [
        f"simulated: {prepared.pair.describe(prepared.spec.cost_model)}",
        *prepared.pair.policy_notes,
        *source.get("notes", ()),
        *source.get("notices", ()),
    ]


def rows_of(workload: str, model: str) -> int:
    """How many rows a workload has after its filters."""
    return len(_trace(workload, None, 0, model))


@lru_cache(maxsize=4)
def _trace(workload: str, requests: int | None, seed: int, model: str) -> Trace:
    name, given = options.split(workload)
    return load_workload(name, given, requests=requests, seed=seed, model=model)
