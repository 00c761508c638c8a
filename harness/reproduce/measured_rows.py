"""A real run as `bench validate` takes it: a run directory of ours, or another tool's file with a row a request."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.core.records import COMPLETED
from harness.core.text import spelled
from harness.runs.run import Run, load_run
from policies.catalog import STOCK, read_policy
from workloads.core.reading import open_regular
from workloads.core.trace import Floats, Ints

# A file of more is no list of requests that one could replay.
LARGEST_FILE = 1 << 30
# What other tools call a column, the surest first: times of one clock before wall times.
NAMES = {
    "arrival": ("queued_ts", "arrival_s", "arrival_time", "arrived_at", "timestamp"),
    "prompt": ("input_toks", "prompt_tokens", "input_tokens", "input_length", "prompt_len"),
    "output": ("output_toks", "output_tokens", "output_length", "output_len"),
    "first": ("first_token_ts", "first_token_s", "first_token_time"),
    "last": ("last_token_ts", "last_token_s", "last_token_time", "end_time"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """How the engine ran: GPU or profile, model and its config, limits, policy; None where nobody says.

    `concurrency` is that of a closed loop, None of an open one.
    """

    gpu: str | None = None
    model: str | None = None
    config: dict[str, Any] | None = None
    tp: int = 1
    policy: str = "v1"
    slots: int = 256
    token_budget: int = 2048
    kv_tokens: int | None = None
    block_size: int = 16
    max_model_len: int = 131072
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Requests in the order of their arrival: tokens, and when they arrived and got first and last token, s."""

    where: str
    prompt_tokens: Ints
    output_tokens: Ints
    arrival: Floats
    first: Floats
    last: Floats
    setting: Setting


def read_measured_run(path: Path) -> MeasuredRun:
    """The run of a directory or file; UserError where it is none, or nothing in it was completed."""
    if path.is_dir():
        return _of_run(load_run(path))
    return _of_file(path)


def _of_run(run: Run) -> MeasuredRun:
    spec = run.spec
    if spec.sessions:
        raise UserError(f"{run.path}: turns of conversations wait for answers: replay it with bench run instead")
    table = run.requests()
    finish = table["finish"].to_pylist()
    keep = np.array([one in COMPLETED for one in finish])
    policy = "v1" if read_policy(spec.policy)[0] == STOCK else spec.policy
    kind, _, load = spec.arrival.partition(":concurrency=")
    setting = Setting(
        gpu=run.profile,
        model=spec.model,
        config=spec.config or None,
        tp=spec.tp,
        policy=policy,
        slots=spec.slots,
        token_budget=spec.token_budget,
        kv_tokens=_capacity(run),
        block_size=spec.block_size,
        max_model_len=spec.max_model_len,
        concurrency=int(load) if kind == "closed" else None,
    )
    prompt, output, sent, first, last = (
        table[name].to_numpy(zero_copy_only=False)[keep]
        for name in ("prompt_tokens", "output_tokens", "sent_s", "first_token_s", "last_token_s")
    )
    return _run(str(run.path), prompt, output, sent, first, last, setting)


def _capacity(run: Run) -> int | None:
    provenance = run.manifest["provenance"]
    for key, size in (("kv_cache_tokens", 1), ("kv_blocks", run.spec.block_size)):
        value = provenance.get(key)
        if type(value) is int and value > 0:
            return value * size
    return run.spec.kv_tokens


def _of_file(path: Path) -> MeasuredRun:
    where = spelled(path)
    with open_regular(path) as stream:
        data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise UserError(f"{where}: larger than any list of requests that one could replay")
    try:
        text = data.decode("utf-8-sig")
        rows = list(_lines(text) if text.lstrip()[:1] == "{" else csv.DictReader(io.StringIO(text)))
    except (ValueError, csv.Error) as error:
        raise UserError(f"{where}: neither JSON lines nor CSV with a row a request ({str(error)[:80]})") from None
    if not rows:
        raise UserError(f"{where}: no requests in it")
    found = {}
    for what, names in NAMES.items():
        name = next((one for one in names if one in rows[0]), None)
        if name is None:
            raise UserError(f"{where}: no column of each request's {what}: call it one of {', '.join(names)}")
        found[what] = np.array([_number(where, number, name, row) for number, row in enumerate(rows, 1)])
    return _run(where, found["prompt"], found["output"], found["arrival"], found["first"], found["last"], Setting())


def _lines(text: str) -> Iterable[dict[str, Any]]:
    for line in text.splitlines():
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("a line that is no object")
            yield row


def _number(where: str, number: int, name: str, row: dict[str, Any]) -> float:
    try:
        value = float(row.get(name))  # type: ignore[arg-type] # None raises TypeError
    except (TypeError, ValueError):
        value = float("nan")
    if not np.isfinite(value) or value < 0:
        raise UserError(f"{where}, row {number}: {name} is {str(row.get(name))[:40]!r}: leave out requests that failed")
    return value


def _run(
    where: str, prompt: Floats, output: Floats, arrival: Floats, first: Floats, last: Floats, setting: Setting
) -> MeasuredRun:
    if len(prompt) < 2:
        raise UserError(f"{where}: fewer than two completed requests: nothing to compare")
    order = np.argsort(arrival, kind="stable")
    start = float(arrival[order[0]])
    times = [np.asarray(one, dtype=np.float64)[order] - start for one in (arrival, first, last)]
    tokens = [np.asarray(one, dtype=np.int64)[order] for one in (prompt, output)]
    early = np.flatnonzero((times[1] < times[0]) | (times[2] < times[1]) | (tokens[0] < 1) | (tokens[1] < 1))
    if len(early):
        raise UserError(
            f"{where}: request {int(order[early[0]]) + 1} has tokens before it arrived, or none: its times must be of "
            "one clock, in seconds"
        )
    return MeasuredRun(where, tokens[0], tokens[1], times[0], times[1], times[2], setting)


def told(run: MeasuredRun, **given: Any) -> MeasuredRun:
    """The run with what the user says of its setting in place of what the run does."""
    return replace(
        run, setting=replace(run.setting, **{key: value for key, value in given.items() if value is not None})
    )
