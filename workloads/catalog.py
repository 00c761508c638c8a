"""Every workload by name: what it is, where it comes from, its options, how it is loaded."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads import formats, options
from workloads.datasets import sharegpt
from workloads.drift import LENGTH_DRIFTS, Ask, Drift
from workloads.drift_rates import RATE_DRIFTS
from workloads.embedded import load_embedded
from workloads.errors import WorkloadError
from workloads.filters import limit, select, with_history
from workloads.hub import fetch
from workloads.options import Option
from workloads.reading import shown
from workloads.synthetic import LAWS, synthesize
from workloads.trace import Trace

Values = Mapping[str, Any]
DEFAULT_REQUESTS = 4000


@dataclass(frozen=True, slots=True)
class Asked:
    """What the run asks of a workload besides its options; requests None where nobody says how many."""

    requests: int | None
    seed: int
    model: str


@dataclass(frozen=True, slots=True)
class WorkloadEntry:
    """A workload: `load` gets typed options and what the run asks; `windowed` ones go through `select`."""

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]
    load: Callable[[Values, Asked], Trace]
    windowed: bool = True


def _protocol(cap: int, forced: int) -> tuple[Option, ...]:
    return (
        Option("output_cap", int, cap, "outputs cut at this many tokens, 0: uncut", 0),
        Option("forced", int, forced, "every output exactly this many tokens, 0: the data set's own", 0),
        Option("min_prompt_tokens", int, 1, "shorter prompts are left out", 1),
        Option("min_output_tokens", int, 1, "shorter outputs, as counted, are left out", 1),
        Option("max_prompt_tokens", int, 0, "longer prompts are left out, 0: none", 0),
    )


_ORDER = Option(
    "order",
    str,
    "file",
    "file; shuffled by the seed; paper: the window shuffled as the published client does",
    choices=("file", "shuffled", "paper"),
)
_TEXT = (
    Option("pairs", str, "all", "all pairs of a conversation or the first only", choices=("all", "first")),
    Option("tokenizer", str, "", "path, Hugging Face id, or qwen; by default the model's"),
    Option("allow_truncated", bool, False, "take what is whole of a file that is cut off"),
)
_TIMELESS = ("order", "path", "format", "tokenizer", "allow_truncated", "source", "history")


def _path(text: str) -> Path:
    # pathlib's own raises for an unknown ~user: that is then a file that is not there.
    return Path(os.path.expanduser(text))


def _limits(values: Values) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in _TIMELESS}


def _real_sharegpt(path: Path, values: Values, model: str, asked: str) -> Trace:
    allow = values["allow_truncated"]
    trace = sharegpt.load(path, tokenizer=values["tokenizer"], model=model, allow_truncated=allow, asked=asked)
    return limit(trace, **_limits(values))


def _sharegpt(values: Values, asked: Asked) -> Trace:
    if values["path"]:
        return _real_sharegpt(_path(values["path"]), values, asked.model, "sharegpt:path=FILE,")
    if values["source"] == "hub":
        remedy = "fetch the file elsewhere and give sharegpt:path=FILE, or use the embedded trace, plain sharegpt"
        what = f"{sharegpt.HUB_DATASET} from the hub"
        file = fetch(sharegpt.HUB_DATASET, sharegpt.HUB_FILE, kind="dataset", what=what, remedy=remedy)
        trace = _real_sharegpt(file, values, asked.model, "sharegpt:source=hub,")
        # The hub's cache keeps a file under its revision: …/snapshots/REVISION/FILE.
        return dataclasses.replace(trace, source={**trace.source, "revision": file.parent.name})
    if values["tokenizer"] or values["allow_truncated"]:
        raise WorkloadError(
            "sharegpt: tokenizer and allow_truncated go with path=FILE or source=hub; "
            "the embedded trace is counted already, with Qwen's vocabulary"
        )
    trace = load_embedded("sharegpt")
    if asked.model and "qwen" not in asked.model.lower():
        note = f"lengths are counted with Qwen's vocabulary, the model is {asked.model}"
        trace = dataclasses.replace(trace, source={**trace.source, "notes": [note]})
    return limit(trace, **_limits(values))


def _twin(name: str) -> Callable[[Values, Asked], Trace]:
    def load(values: Values, _asked: Asked) -> Trace:
        trace = limit(load_embedded(name), **_limits(values))
        return with_history(trace) if values.get("history") else trace

    return load


def _synthetic(values: Values, asked: Asked) -> Trace:
    requests = DEFAULT_REQUESTS if asked.requests is None else asked.requests
    return synthesize(**values, requests=requests, seed=asked.seed)


def _file(values: Values, asked: Asked) -> Trace:
    path = _path(values["path"])
    format_ = values["format"] or formats.guess_format(path)
    if format_ in formats.LOADERS:
        return limit(formats.LOADERS[format_](path), **_limits(values))
    trace = _real_sharegpt(path, values, asked.model, "file:PATH,")
    source = {key: value for key, value in trace.source.items() if key != "data_set"}
    return dataclasses.replace(trace, source={**source, "kind": "file", "format": "sharegpt"})


def _drift(one: Drift) -> WorkloadEntry:
    def load(values: Values, asked: Asked) -> Trace:
        if values.get("jitter", 0) > 1:
            raise WorkloadError(f"drift:{one.name}: jitter={values['jitter']} is above 1: lengths would be negative")
        if asked.requests is not None and asked.requests < 1:
            raise WorkloadError(f"drift:{one.name}: {asked.requests} requests asked for: give 1 or more")
        if asked.seed < 0:
            raise WorkloadError(f"drift:{one.name}: seed {asked.seed} is negative: give 0 or more")

        def lengths(name: str, rows: int) -> Trace:
            if name == "file" or name.startswith("drift"):
                raise WorkloadError(f"drift:{one.name}: lengths={name}: give a data set's name, such as sharegpt")
            return load_workload(name, {}, requests=rows, seed=asked.seed, model=asked.model)

        return one.make(values, Ask(asked.requests, asked.seed, lengths))

    return WorkloadEntry(f"{DRIFT}:{one.name}", one.summary, one.source, one.options, load, windowed=False)


DRIFT = "drift"
_ENTRIES = (
    WorkloadEntry(
        "sharegpt",
        "ShareGPT, every human→gpt pair as one request; embedded lengths, or the real file",
        f"{sharegpt.HUB_DATASET}: {sharegpt.HUB_FILE}",
        (
            Option("path", str, "", "the real file; by default the embedded lengths"),
            Option("source", str, "embedded", "embedded, or hub: download the file", choices=("embedded", "hub")),
            *_TEXT,
            *_protocol(500, 0),
            _ORDER,
        ),
        _sharegpt,
    ),
    WorkloadEntry(
        "longbench",
        "LongBench v2 chunks: prompts of 1000 to 4000 tokens, 20 tokens out (twin)",
        "THUDM/LongBench-v2",
        (*_protocol(20, 20), _ORDER),
        _twin("longbench"),
    ),
    WorkloadEntry(
        "wildchat",
        "WildChat conversations of 6 to 12 turns, at most 256 tokens a turn (twin)",
        "allenai/WildChat-1M",
        (
            *_protocol(256, 0),
            Option("history", bool, False, "each prompt carries the session's earlier turns"),
            _ORDER,
        ),
        _twin("wildchat"),
    ),
    WorkloadEntry(
        "numinamath",
        "NuminaMath, answers of 800 to 4000 tokens (twin); forced=4000 as the reproduction ran it",
        "AI-MO/NuminaMath-CoT",
        (*_protocol(4000, 0), _ORDER),
        _twin("numinamath"),
    ),
    WorkloadEntry(
        "lmsys",
        "LMSYS-Chat-1M conversations (twin)",
        "lmsys/lmsys-chat-1m",
        (*_protocol(0, 0), _ORDER),
        _twin("lmsys"),
    ),
    WorkloadEntry(
        "synthetic",
        "lengths drawn around two means",
        "drawn from the run's seed",
        (
            Option("mu_l", int, 512, "mean prompt length, tokens", 1),
            Option("mu_o", int, 256, "mean output length, tokens", 1),
            Option("jitter", float, 0.5, "lengths lie within ± this share of the mean, 0 to 1", 0),
            Option("law", str, "uniform", "uniform; geometric outputs; fixed at the means", choices=LAWS),
        ),
        _synthetic,
        windowed=False,
    ),
    WorkloadEntry(
        "file",
        "your own trace: our JSON lines or parquet, or a file of Azure, Mooncake, BurstGPT, Vidur or ShareGPT",
        "a file",
        (
            Option("path", str, None, "the file"),
            Option("format", str, "", "by default guessed from the content", choices=("", *formats.FORMATS)),
            *_TEXT,
            *_protocol(0, 0),
            _ORDER,
        ),
        _file,
    ),
)
CATALOG: dict[str, WorkloadEntry] = {
    entry.name: entry for entry in (*_ENTRIES, *map(_drift, (*LENGTH_DRIFTS, *RATE_DRIFTS)))
}


def entry_of(name: str, given: Mapping[str, str]) -> tuple[WorkloadEntry, Mapping[str, str]]:
    """The catalog's entry and its options, or WorkloadError with the nearest name and the list.

    A drift's own name is the first option of `drift`, which needs no key: `drift:distribution,order=paper`.
    """
    name = name.lower()
    if name == DRIFT:
        given = dict(given)
        kind = given.pop("path", "").lower()
        name = f"{DRIFT}:{kind}"
        if name not in CATALOG:
            drifts = [known.partition(":")[2] for known in CATALOG if known.startswith(f"{DRIFT}:")]
            told = f"no drift {shown(kind, 60)!r}{options.suggest(kind, drifts)}" if kind else "drift needs a name"
            raise WorkloadError(f"{told}: write drift:NAME,option=…; known are {', '.join(drifts)}")
    if name not in CATALOG:
        known = [*(one for one in CATALOG if ":" not in one), DRIFT]
        raise WorkloadError(f"unknown workload {name!r}{options.suggest(name, known)}: known are {', '.join(known)}")
    return CATALOG[name], given


def load_workload(name: str, given: Mapping[str, str], *, requests: int | None, seed: int, model: str) -> Trace:
    """The trace a run replays: options read, rows filtered, the window of this seed taken.

    `requests` None takes every row (of `synthetic`: 4000). Raises WorkloadError, one line, for whatever the
    user can mend.
    """
    entry, given = entry_of(name, given)
    values = options.read(entry.name, entry.options, given)
    trace = entry.load(values, Asked(requests, seed, model))
    if entry.windowed:
        trace = select(trace, requests, seed, values["order"])
    source = {**trace.source, "workload": _canonical(entry, values)}
    return dataclasses.replace(trace, name=entry.name, source=source)


def canonical_workload(name: str, given: Mapping[str, str]) -> str:
    """`name:key=value,…` with only what differs from the default, sorted; `file:PATH,…` for a file."""
    entry, given = entry_of(name, given)
    return _canonical(entry, options.read(entry.name, entry.options, given))


def _canonical(entry: WorkloadEntry, values: Values) -> str:
    told = {o.name: values[o.name] for o in entry.options if values[o.name] != o.default}
    first = [told.pop("path")] if entry.name == "file" else []
    parts = first + [f"{key}={options.write(told[key])}" for key in sorted(told)]
    # The name of a drift is an option already, so that the others follow a comma.
    return f"{entry.name}{',' if ':' in entry.name else ':'}{','.join(parts)}" if parts else entry.name
