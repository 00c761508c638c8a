"""From all rows of a data set to those a protocol sends: filters, caps, forced outputs, and the window."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np

from workloads.core.errors import WorkloadError
from workloads.core.seeds import generator
from workloads.core.trace import Bools, Ints, Trace, passing

_GOLDEN = (math.sqrt(5) - 1) / 2


def limit(
    trace: Trace,
    *,
    pairs: str = "all",
    output_cap: int = 0,
    forced: int = 0,
    min_prompt_tokens: int = 1,
    min_output_tokens: int = 1,
    max_prompt_tokens: int = 0,
    natural: int = 0,
) -> Trace:
    """The rows that pass the filters, outputs cut at `output_cap` or all set to `forced` (0: neither).

    With `natural` outputs are drawn as a model would stop by itself under that cap, `natural` tokens in the mean.
    Filters look at the lengths as counted, before cap and force. What they drop is counted in
    source["skipped"]. Raises WorkloadError where nothing is left.
    """
    broken: dict[str, Bools] = {}
    if pairs == "first" and trace.turn is not None:
        broken["not the first pair (pairs=first)"] = trace.turn > 0
    broken[f"prompt below {min_prompt_tokens} tokens"] = trace.prompt_tokens < min_prompt_tokens
    broken[f"output below {min_output_tokens} tokens"] = trace.output_tokens < min_output_tokens
    if max_prompt_tokens:
        broken[f"prompt above {max_prompt_tokens} tokens"] = trace.prompt_tokens > max_prompt_tokens
    skipped: dict[str, int] = dict(trace.source.get("skipped", {}))
    keep = passing(broken, skipped)
    if not keep.any():
        raise WorkloadError(f"{trace.name}: the filters leave no row of {len(trace)} ({skipped}): loosen them")
    kept = trace if keep.all() else trace.take(np.flatnonzero(keep))
    output = kept.output_tokens
    if output_cap:
        output = np.minimum(output, output_cap)
    if natural:
        if forced or not 1 <= natural < output_cap:
            raise WorkloadError(
                f"{trace.name}: natural={natural} is the mean of outputs that stop by themselves under output_cap="
                f"{output_cap}: give 1 to less than the cap, without forced"
            )
        output = natural_stops(len(kept), natural, output_cap)
    if forced:
        output = np.full_like(output, forced)
    filters = {
        "pairs": pairs,
        "output_cap": output_cap,
        "forced": forced,
        "min_prompt_tokens": min_prompt_tokens,
        "min_output_tokens": min_output_tokens,
        "max_prompt_tokens": max_prompt_tokens,
    }
    if natural:
        filters["natural"] = natural
    source = {**kept.source, "filters": filters, "skipped": skipped}
    return dataclasses.replace(kept, output_tokens=output, source=source)


def natural_stops(rows: int, mean: int, cap: int) -> Ints:
    """Outputs of a model that stops by itself, tokens, shape (rows,): as likely after each token, cut at `cap`.

    The chance of stopping is the one that gives outputs `mean` tokens in the mean, cut ones included. They belong to
    the data: the same for every seed of a run.
    """
    low, high = 0.0, 1.0
    for _ in range(100):
        chance = (low + high) / 2
        if chance in (low, high):
            break
        expected = -math.expm1(cap * math.log1p(-chance)) / chance
        low, high = (chance, high) if expected > mean else (low, chance)
    return np.minimum(generator(0, "natural").geometric(high, rows), cap).astype(np.int64)


def with_history(trace: Trace) -> Trace:
    """Each prompt with its session's earlier prompts and outputs before it, as a multi-turn client sends.

    Earlier is what has a lower turn: sessions may lie interleaved, as they do in the order of time.
    """
    if trace.session is None or trace.turn is None:
        raise WorkloadError(f"{trace.name}: history=true needs sessions, and this trace has none")
    rows = np.lexsort((trace.turn, trace.session))
    session, prompt = trace.session[rows], trace.prompt_tokens[rows]
    total = np.cumsum(prompt + trace.output_tokens[rows])
    before = np.concatenate([[0], total[:-1]])
    starts = np.flatnonzero(np.diff(session, prepend=session[0] - 1))
    sizes = np.diff(np.append(starts, len(trace)))
    history = np.empty_like(prompt)
    history[rows] = before - np.repeat(before[starts], sizes)
    return dataclasses.replace(trace, prompt_tokens=trace.prompt_tokens + history)


def _order(trace: Trace, requests: int, seed: int, order: str) -> tuple[Ints, int]:
    """The rows that a window takes, in the order in which it sends them, and the row where it begins."""
    rows = len(trace)
    # Once the windows have gone round the trace, each lap begins elsewhere, so that no two seeds take the same rows.
    lap = seed * requests // rows
    start = (seed * requests + round(lap * _GOLDEN * requests)) % rows
    index = (start + np.arange(requests, dtype=np.int64)) % rows
    if order == "shuffled":
        index = generator(seed, "order").permutation(rows)[index]
    elif order == "paper":
        # The published client shuffles what it was given with Python's own generator, always seeded 0.
        listed = index.tolist()
        random.Random(0).shuffle(listed)  # noqa: S311 - the published client's own shuffle
        index = np.array(listed, dtype=np.int64)
    return index, start


def select(trace: Trace, requests: int | None, seed: int, order: str = "file") -> Trace:
    """The rows a run takes: the window of `requests` rows that follows the windows of the seeds before it.

    It wraps round, and each lap of the trace begins a little further on. With seed 0 it is the first `requests`
    rows, as published. More requests than rows repeat the trace.
    `order`: `file`; `time`, the same of a trace sorted by its times; `shuffled` permutes the whole trace by the
    seed first; `paper` shuffles the window as the published client does. Timestamps count from the first request
    taken; they go where the rows no longer ascend, and sessions where requests are shuffled or repeated. None takes
    every row.
    """
    requests = len(trace) if requests is None else requests
    if requests < 1:
        raise WorkloadError(f"{trace.name}: {requests} requests asked for: give 1 or more")
    if seed < 0:
        raise WorkloadError(f"{trace.name}: seed {seed} is negative: give 0 or more")
    index, start = _order(trace, requests, seed, order)
    notes: list[str] = list(trace.source.get("notes", []))
    if requests > len(trace):
        times = requests / len(trace)
        notes.append(f"{requests} requests repeat the trace of {len(trace)} rows {times:.3g} times")
    taken = trace.take(index)
    source = {**taken.source, "window": {"start": start, "rows": requests, "of": len(trace), "order": order}}
    timestamp, session, turn = taken.timestamp_s, taken.session, taken.turn
    if order not in ("file", "time"):
        notes.append(f"order={order}: every request stands alone, in an order of its own")
        timestamp = session = turn = None
    if timestamp is not None:
        timestamp = timestamp - timestamp[0]
        if timestamp.min() < 0:
            notes.append("the window wraps round the trace's end, so its arrival times are left out")
            timestamp = None
    if notes:
        source["notes"] = notes
    return dataclasses.replace(taken, source=source, timestamp_s=timestamp, session=session, turn=turn)
