"""Traffic that changes on the way: each drift is one trace, its phases marked by name and first row.

The published ones draw their lengths as the authors' generator does (numpy's RandomState, seeded 42): with seed 0
they are theirs to the token, with seed s it is seeded 42 + s.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from workloads.core.errors import WorkloadError
from workloads.core.options import LARGEST, Option
from workloads.core.reading import spelled
from workloads.core.seeds import generator
from workloads.core.trace import Ints, Trace
from workloads.lengths.synthetic import LAWS, draw_outputs, uniform

PUBLISHED_SEED = 42
PUBLISHED_JITTER = 0.25
SHAPES = ("geometric", "increasing", "forced")
PAPER = "arXiv 2606.00516 and the scripts of its reproduction (weifang231/eb-vllm, rucnyz/vllm)"


@dataclass(frozen=True, slots=True)
class DriftInputs:
    """What a run gives a drift besides its options; `lengths` loads a workload's first so many rows.

    `requests` is None where nobody says how many.
    """

    requests: int | None
    seed: int
    lengths: Callable[[str, int], Trace]


@dataclass(frozen=True, slots=True)
class Drift:
    """A drift by name; `make` gets typed options and what the run gives."""

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]
    make: Callable[[Mapping[str, Any], DriftInputs], Trace]


def traced(name: str, prompt: Ints, output: Ints, marks: list[dict[str, Any]], **source: Any) -> Trace:
    """The trace of a drift, its marks as `phases`."""
    return Trace(name, prompt, output, {"kind": "synthetic", "drift": name, "phases": marks, **source})


def marks_of(names: Sequence[str], counts: Sequence[int]) -> list[dict[str, Any]]:
    """A mark a phase: its name and first row."""
    firsts = accumulate(counts[:-1], initial=0)
    return [{"name": name, "first_row": first} for name, first in zip(names, firsts, strict=True)]


def scaled(name: str, counts: Sequence[int], requests: int | None) -> list[int]:
    """The rows of each phase: as given, or in the same shares of the requests asked for.

    Raises WorkloadError where a phase would be left without a row.
    """
    if requests is None:
        return list(counts)
    ends = [requests * end // sum(counts) for end in accumulate(counts)]
    rows = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if min(rows) < 1:
        least = -(-sum(counts) // min(counts))
        raise WorkloadError(
            f"drift:{name}: {requests} requests asked for leave a phase of {len(counts)} empty: give {least} or more"
        )
    return rows


def whole_numbers(name: str, option: str, text: str, least: int = 1) -> list[int]:
    """`1024/512/128` as whole numbers; WorkloadError where it is not."""
    try:
        numbers = [int(part) for part in text.split("/")]
    except ValueError:
        numbers = []
    if not numbers or not all(least <= number <= LARGEST for number in numbers):
        raise WorkloadError(
            f"drift:{name}: {option}={spelled(text, 60)} is no list of whole numbers of at least {least}, such as 512/128"
        )
    return numbers


def same_length(name: str, lists: Mapping[str, Sequence[Any]]) -> None:
    """WorkloadError where lists that go by phase have different lengths."""
    if len({len(values) for values in lists.values()}) > 1:
        counts = ", ".join(f"{len(values)} in {option}" for option, values in lists.items())
        raise WorkloadError(f"drift:{name}: one value a phase in each list; there are {counts}")


def _published_generator(seed: int) -> np.random.RandomState:
    return np.random.RandomState((PUBLISHED_SEED + seed) % (1 << 32))


def _generator_name(seed: int) -> str:
    return f"RandomState({PUBLISHED_SEED} + {seed})"


def published_outputs(rng: np.random.RandomState, mu_o: int, n: int) -> Ints:
    """The authors' output lengths: whole numbers evenly within ±25 % of μ_O, at least 16."""
    low, high = max(16, int((1 - PUBLISHED_JITTER) * mu_o)), int((1 + PUBLISHED_JITTER) * mu_o)
    return rng.randint(low, high + 1, n).astype(np.int64)


def _paper_order(n: int) -> Ints:
    """The rows as the published client sends them: Python's own shuffle, always seeded 0."""
    rows = list(range(n))
    random.Random(0).shuffle(rows)  # noqa: S311 - the published client's own shuffle
    return np.array(rows, dtype=np.int64)


_DISTRIBUTION = ((1024, 128), (512, 512), (128, 1024))


def distribution(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
    """The published shift of lengths, 2,000 requests a phase; in paper order it is a mixture and no shift."""
    counts = scaled("distribution", [2000] * 3, inputs.requests)
    rng = _published_generator(inputs.seed)
    prompt = np.repeat([mu_l for mu_l, _ in _DISTRIBUTION], counts).astype(np.int64)
    output = np.concatenate(
        [published_outputs(rng, mu_o, n) for (_, mu_o), n in zip(_DISTRIBUTION, counts, strict=True)]
    )
    marks = marks_of([f"{mu_l} in, {mu_o} out" for mu_l, mu_o in _DISTRIBUTION], counts)
    source: dict[str, Any] = {"source": PAPER, "order": values["order"], "generator": _generator_name(inputs.seed)}
    if values["order"] == "paper":
        rows = _paper_order(len(prompt))
        prompt, output, marks = prompt[rows], output[rows], [{"name": "paper order (shuffled)", "first_row": 0}]
        source["notes"] = ["order=paper: shuffled as the published client does it, so a mixture without a shift"]
    return traced("distribution", prompt, output, marks, **source)


@dataclass(frozen=True, slots=True)
class _Level:
    concurrency: int
    requests: int
    file_rows: int  # in the file of which the phase sends the first so many


_LOG = tuple(_Level(c, n, 3000) for c, n in ((32, 1000), (512, 3000), (1024, 3000), (256, 2000)))
_SCHEDULES: dict[str, tuple[str, tuple[_Level, ...], str]] = {
    "concurrency-paper": (
        "concurrency 32, 512, 1024, 256, 2048, as in the paper",
        (*_LOG, _Level(2048, 4000, 4000)),
        "requests a phase: the paper prints none; those of the authors' logs stand in",
    ),
    "concurrency-script": (
        "concurrency 32, 2048, 500, the default of the authors' script",
        tuple(_Level(c, n, 4000) for c, n in ((32, 500), (2048, 4000), (500, 2000))),
        "",
    ),
    "concurrency-log": ("concurrency 32, 512, 1024, 256, as the authors' log of 2026-03-26 shows it", _LOG, ""),
    "concurrency-early": (
        "concurrency 32, 2048, 256, of an early description",
        tuple(_Level(c, n, 3000) for c, n in ((32, 1000), (2048, 3000), (256, 2000))),
        "",
    ),
}


def _published_schedule(name: str) -> Callable[[Mapping[str, Any], DriftInputs], Trace]:
    _, levels, assumed = _SCHEDULES[name]

    def make(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
        counts = scaled(name, [level.requests for level in levels], inputs.requests)
        parts = []
        for level, count in zip(levels, counts, strict=True):
            # Each phase is a client run of its own on the same file, from its first row.
            file = published_outputs(_published_generator(inputs.seed), 256, max(level.file_rows, count))
            rows = _paper_order(len(file)) if values["order"] == "paper" else np.arange(len(file))
            parts.append(file[rows[:count]])
        source = {"source": PAPER, "order": values["order"], "drain": True, "generator": _generator_name(inputs.seed)}
        source |= {"assumed": assumed} if assumed else {}
        concurrency = [level.concurrency for level in levels]
        prompt = np.full(sum(counts), 512, dtype=np.int64)
        return _leveled(name, prompt, np.concatenate(parts), concurrency, counts, source)

    return make


def _leveled(
    name: str, prompt: Ints, output: Ints, levels: Sequence[int], counts: Sequence[int], source: Mapping[str, Any]
) -> Trace:
    """The trace of a closed loop, the level of concurrency in the mark of its phase."""
    marks = marks_of([f"c = {level}" for level in levels], counts)
    marks = [{**mark, "concurrency": level} for mark, level in zip(marks, levels, strict=True)]
    return traced(name, prompt, output, marks, **source)


def concurrency(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
    """A closed loop with a level of concurrency a phase."""
    levels = whole_numbers("concurrency", "levels", values["levels"])
    rows = whole_numbers("concurrency", "rows", values["rows"])
    same_length("concurrency", {"levels": levels, "rows": rows})
    counts = scaled("concurrency", rows, inputs.requests)
    rng = generator(inputs.seed, "lengths")
    n = sum(counts)
    prompt, output = uniform(rng, values["mu_l"], 0.0, n), uniform(rng, values["mu_o"], values["jitter"], n)
    return _leveled("concurrency", prompt, output, levels, counts, {"drain": values["drain"], "seed": inputs.seed})


def lengths(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
    """Other mean lengths in each phase."""
    name = "lengths"
    mu_l, mu_o = whole_numbers(name, "mu_l", values["mu_l"]), whole_numbers(name, "mu_o", values["mu_o"])
    rows = whole_numbers(name, "rows", values["rows"])
    same_length(name, {"mu_l": mu_l, "mu_o": mu_o, "rows": rows})
    counts = scaled(name, rows, inputs.requests)
    rng = generator(inputs.seed, "lengths")
    jitter = values["jitter"]
    prompt = np.concatenate([uniform(rng, mean, jitter, n) for mean, n in zip(mu_l, counts, strict=True)])
    output = np.concatenate(
        [draw_outputs(rng, values["law"], mean, jitter, n) for mean, n in zip(mu_o, counts, strict=True)]
    )
    marks = marks_of([f"{a} in, {b} out" for a, b in zip(mu_l, mu_o, strict=True)], counts)
    return traced(name, prompt, output, marks, seed=inputs.seed, law=values["law"])


def mixture(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
    """Two kinds of requests whose shares change evenly from the first row to the last."""
    name = "mixture"
    kinds = [whole_numbers(name, key, values[key]) for key in ("a", "b")]
    for key, kind in zip(("a", "b"), kinds, strict=True):
        if len(kind) != 2:
            raise WorkloadError(f"drift:mixture: {key}={spelled(values[key], 60)} is not mean input/mean output")
    start, end = values["from"], values["to"]
    if not (start <= 1 and end <= 1):
        raise WorkloadError(f"drift:mixture: from={start:g} and to={end:g} are shares of b: 0 to 1")
    n = values["rows"] if inputs.requests is None else inputs.requests
    rng = generator(inputs.seed, "lengths")
    is_b = rng.random(n) < start + (end - start) * (np.arange(n) + 0.5) / n
    drawn = []
    for place in (0, 1):
        a, b = (uniform(rng, kind[place], values["jitter"], n) for kind in kinds)
        drawn.append(np.where(is_b, b, a))
    counts = scaled(name, [1, 1, 1, 1], n)
    shares = [100 * (start + (end - start) * quarter / 4) for quarter in range(5)]
    names = [f"{values['b']} from {shares[i]:.0f} to {shares[i + 1]:.0f} %" for i in range(4)]
    return traced(name, drawn[0], drawn[1], marks_of(names, counts), seed=inputs.seed)


def hazard(values: Mapping[str, Any], inputs: DriftInputs) -> Trace:
    """One mean output length, another law in each phase.

    geometric: hazard 1/μ_O at every age; increasing: hazard η·t with η = π/(2μ_O²); forced: all at μ_O.
    """
    shapes = values["shapes"].split("/")
    unknown = [shape for shape in shapes if shape not in SHAPES]
    if unknown:
        raise WorkloadError(f"drift:hazard: no shape {spelled(unknown[0], 40)}: known are {', '.join(SHAPES)}")
    counts = scaled("hazard", [values["rows"]] * len(shapes), inputs.requests)
    rng = generator(inputs.seed, "lengths")
    prompt = uniform(rng, values["mu_l"], values["jitter"], sum(counts))
    output = np.concatenate([_shaped(rng, shape, values["mu_o"], n) for shape, n in zip(shapes, counts, strict=True)])
    return traced("hazard", prompt, output, marks_of(shapes, counts), seed=inputs.seed, mu_o=values["mu_o"])


def _shaped(rng: np.random.Generator, shape: str, mu_o: int, n: int) -> Ints:
    if shape == "increasing":
        # By inversion: P(O > t) = exp(−ηt²/2), whose mean is √(π/2η).
        eta = np.pi / (2 * mu_o**2)
        return np.maximum(np.ceil(np.sqrt(-2 * np.log1p(-rng.random(n)) / eta)), 1.0).astype(np.int64)
    return draw_outputs(rng, "geometric" if shape == "geometric" else "fixed", mu_o, 0.0, n)


_ORDER = Option(
    "order", str, "file", "file; paper: shuffled as the published client does it", choices=("file", "paper")
)
_MU_L = Option("mu_l", int, 512, "mean prompt length, tokens", 1)
_MU_O = Option("mu_o", int, 256, "mean output length, tokens", 1)
_JITTER = Option("jitter", float, 0.25, "lengths lie within ± this share of the mean, 0 to 1", 0)
LENGTH_DRIFTS = (
    Drift(
        "distribution",
        "the published shift of lengths: 1024/128, 512/512, 128/1024 tokens, 2,000 requests each",
        PAPER,
        (_ORDER,),
        distribution,
    ),
    *(
        Drift(name, f"closed loop, {summary}; 512 tokens in, 256 out", PAPER, (_ORDER,), _published_schedule(name))
        for name, (summary, _, _) in _SCHEDULES.items()
    ),
    Drift(
        "concurrency",
        "closed loop with levels of your own",
        "drawn from the run's seed",
        (
            Option("levels", str, "32/2048/256", "requests in flight, one a phase"),
            Option("rows", str, "1000/4000/2000", "requests, one number a phase"),
            Option("drain", bool, True, "a phase begins when all before it has ended"),
            _MU_L,
            _MU_O,
            _JITTER,
        ),
        concurrency,
    ),
    Drift(
        "lengths",
        "a shift of lengths of your own",
        "drawn from the run's seed",
        (
            Option("mu_l", str, "1024/512/128", "mean prompt length, tokens, one a phase"),
            Option("mu_o", str, "128/512/1024", "mean output length, tokens, one a phase"),
            Option("rows", str, "2000/2000/2000", "requests, one number a phase"),
            _JITTER,
            Option("law", str, "uniform", "of the outputs: uniform, geometric or fixed", choices=LAWS),
        ),
        lengths,
    ),
    Drift(
        "mixture",
        "two kinds of requests whose shares change evenly; from=to keeps them",
        "drawn from the run's seed",
        (
            Option("a", str, "1024/128", "mean input/mean output of the first kind, tokens"),
            Option("b", str, "128/1024", "the same of the second"),
            Option("from", float, 0.0, "share of b at the first row", 0),
            Option("to", float, 1.0, "share of b at the last row", 0),
            Option("rows", int, 6000, "requests", 4),
            _JITTER,
        ),
        mixture,
    ),
    Drift(
        "hazard",
        "one mean output length, another shape of its hazard in each phase",
        "drawn from the run's seed",
        (
            Option("shapes", str, "geometric/increasing/forced", "one a phase: geometric, increasing or forced"),
            Option("rows", int, 2000, "requests a phase", 1),
            _MU_L,
            _MU_O,
            _JITTER,
        ),
        hazard,
    ),
)
