"""Synthetic run directories: a toy engine in whole nanoseconds, and plain tables of numbers."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.core.records import REQUESTS, STEPS
from harness.core.runspec import RunSpec
from harness.runs.schema import KIND_OF
from harness.runs.writer import RunWriter

SECOND = 1_000_000_000

SPEC = RunSpec(
    gpu="l40s",
    model="Qwen/Qwen3-8B",
    policy="fcfs",
    workload="synthetic:mu_l=64,mu_o=16",
    arrival="closed:concurrency=8",
    requests=200,
)


def batch_of(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as a batch of a schema, columns that they leave out null."""
    plain = pa.schema(
        [pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type) for field in schema]
    )
    return pa.RecordBatch.from_pylist(rows, schema=plain)


def table_of(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_batches([batch_of(schema, rows)]).cast(schema)


def request(row: int, **values: Any) -> dict[str, Any]:
    """A completed request of two tokens, at one second a stage unless told otherwise."""
    start = float(values.pop("at", row))
    given = {
        "id": str(row),
        "row": row,
        "prompt_tokens": 10,
        "expected_output_tokens": values.get("output_tokens", 2),
        "due_s": start,
        "sent_s": start,
        "first_token_s": start + 1,
        "last_token_s": start + 2,
        "done_s": start + 2,
        "output_tokens": 2,
        "preemptions": 0,
        "token_gaps_s": [1.0],
        "finish": "length",
    }
    return given | values


def step(start_s: float, duration_s: float, decodes: int, prefill: int = 0) -> dict[str, Any]:
    phase = "mixed" if prefill and decodes else "prefill" if prefill else "decode"
    return {
        "t_s": start_s,
        "duration_s": duration_s,
        "phase": phase,
        "prefill_tokens": prefill,
        "decode_requests": decodes,
    }


def toy_run(
    n: int = 200,
    seed: int = 0,
    *,
    concurrency: int = 8,
    speed: float = 1.0,
    mean_output: float = 16.0,
    stream_seed: int | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Request and step rows of a closed loop: a step prefills what is new and decodes all others.

    `stream_seed` draws the lengths, `seed` the noise of the step times; `speed` divides every step.
    """
    lengths = np.random.default_rng(seed if stream_seed is None else stream_seed)
    noise = np.random.default_rng([seed, 1])
    output = np.minimum(1 + lengths.geometric(1 / mean_output, n), 400)
    prompt = lengths.integers(16, 256, n)
    requests: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    active: dict[int, dict[str, Any]] = {}
    clock, following = 0, 0
    while following < n or active:
        new: list[int] = []
        while following < n and len(active) + len(new) < concurrency:
            new.append(following)
            following += 1
        cost = (0.010 + 2e-5 * float(prompt[new].sum()) + 1e-4 * len(active)) * float(noise.gamma(50, 1 / 50))
        took = max(1, round(cost * SECOND / speed))
        steps.append(step(clock / SECOND, took / SECOND, len(active), int(prompt[new].sum())))
        began, clock = clock, clock + took
        for row in new:
            active[row] = request(
                row,
                due_s=began / SECOND,
                sent_s=began / SECOND,
                prompt_tokens=int(prompt[row]),
                output_tokens=0,
                expected_output_tokens=int(output[row]),
                first_token_s=clock / SECOND,
                token_gaps_s=None,
            )
        for row in list(active):
            one = active[row]
            one["output_tokens"] += 1
            if one["output_tokens"] == output[row]:
                one["last_token_s"] = one["done_s"] = clock / SECOND
                requests.append(active.pop(row))
    return requests, steps


def write_run(
    out: Path,
    requests: list[dict[str, Any]],
    steps: list[dict[str, Any]] | None = None,
    *,
    spec: RunSpec = SPEC,
    kind: str | None = None,
    status: str = "complete",
    reason: str | None = None,
    provenance: dict[str, Any] | None = None,
    observed: dict[str, Any] | None = None,
    degraded: tuple[str, ...] = (),
    started: datetime = datetime(2026, 11, 29, 22, 15, 1, tzinfo=UTC),
) -> Path:
    """Write a run directory of these rows, of the kind of its engine unless told otherwise; its path."""
    spec = dataclasses.replace(spec, requests=len(requests))
    kind = kind or KIND_OF[spec.engine]
    writer = RunWriter.create(out, spec, kind=kind, provenance=provenance or {}, degraded=degraded, started=started)
    writer.add_requests(batch_of(REQUESTS, requests))
    if steps:
        writer.add_steps(batch_of(STEPS, steps))
    return writer.finish(status, reason, observed)


def write_toy(out: Path, *, policy: str = "fcfs", seed: int = 0, repeat: int = 0, **toy: Any) -> Path:
    """Write a run of the toy engine under a policy's name."""
    n = int(toy.pop("n", 200))
    requests, steps = toy_run(n, seed, **toy)
    spec = dataclasses.replace(SPEC, policy=policy, seed=seed, repeat=repeat)
    return write_run(out, requests, steps, spec=spec)


def faster(out: Path, repeats: int, speed: float = 1.1) -> tuple[list[Path], list[Path]]:
    """Two arms of toy runs under `out`, the second of which takes its steps `speed` times as fast."""
    a, b = [], []
    for repeat in range(repeats):
        common: dict[str, Any] = {"seed": repeat, "repeat": repeat, "stream_seed": 100 + repeat}
        a.append(write_toy(out, policy="fcfs", **common))
        # The same trace, other noise in the step times.
        requests, steps = toy_run(200, 50 + repeat, stream_seed=100 + repeat, speed=speed)
        spec = dataclasses.replace(SPEC, policy="eb:k=4", seed=repeat, repeat=repeat)
        b.append(write_run(out, requests, steps, spec=spec))
    return a, b
