"""Every workload by name: what it is, where it comes from, its options, how it is loaded."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.core import options
from workloads.core.errors import WorkloadError
from workloads.core.options import Option
from workloads.core.reading import shown
from workloads.core.trace import Trace
from workloads.datasets import longbench, real, sharegpt
from workloads.datasets.conversations import LMSYS, NUMINAMATH, WILDCHAT, Form
from workloads.lengths.drift import LENGTH_DRIFTS, Ask, Drift
from workloads.lengths.drift_rates import RATE_DRIFTS
from workloads.lengths.embedded import load_embedded
from workloads.lengths.filters import limit, select, with_history
from workloads.lengths.synthetic import LAWS, synthesize
from workloads.traces import formats
from workloads.traces.told import NO_BLOCKS, Told
from workloads.traces.units import UNITS

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
    """A workload: `load` gets typed options and what the run asks; `windowed` ones go through `select`.

    `texts` gives the data set's own prompts, where it is at hand: of options, model, and whether a conversation is
    wanted as messages.
    """

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]
    load: Callable[[Values, Asked], Trace]
    windowed: bool = True
    texts: Callable[[Values, str, bool], real.Texts] | None = None


def _protocol(cap: int, forced: int, min_output: int = 1) -> tuple[Option, ...]:
    return (
        Option("output_cap", int, cap, "outputs cut at this many tokens, 0: uncut", 0),
        Option("forced", int, forced, "every output exactly this many tokens, 0: the data set's own", 0),
        Option("min_prompt_tokens", int, 1, "shorter prompts are left out", 1),
        Option("min_output_tokens", int, min_output, "shorter outputs, as counted, are left out", 1),
        Option("max_prompt_tokens", int, 0, "longer prompts are left out, 0: none", 0),
    )


_LIMITS = ("pairs", *(option.name for option in _protocol(0, 0)))
_ORDER = Option(
    "order",
    str,
    "file",
    "file; shuffled by the seed; paper: the window shuffled as the published client does",
    choices=("file", "shuffled", "paper"),
)
_TEXT = (real.PAIRS, *real.COUNTED)
_HISTORY = (
    Option("history", bool, False, "each prompt carries the session's earlier turns"),
    Option("template", bool, False, "each prompt is the session up to its turn, by the model's chat template"),
)


def _path(text: str) -> Path:
    # pathlib's own raises for an unknown ~user: that is then a file that is not there.
    return Path(os.path.expanduser(text))


def _limits(values: Values) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in _LIMITS}


def _real_sharegpt(path: Path, values: Values, model: str, asked: str) -> Trace:
    allow = values["allow_truncated"]
    trace = sharegpt.load(path, tokenizer=values["tokenizer"], model=model, allow_truncated=allow, asked=asked)
    return limit(trace, **_limits(values))


def _sharegpt(values: Values, asked: Asked) -> Trace:
    if values["path"] or values["hf"] or values["source"] == "hub":
        return limit(real.share_gpt(values, asked.model), **_limits(values))
    if values["tokenizer"] or values["allow_truncated"]:
        raise WorkloadError(
            "sharegpt: tokenizer and allow_truncated go with path=FILE, hf=ID or source=hub; "
            "the embedded trace is counted already, with Qwen's vocabulary"
        )
    trace = load_embedded("sharegpt")
    if asked.model and "qwen" not in asked.model.lower():
        note = f"lengths are counted with Qwen's vocabulary, the model is {asked.model}"
        trace = dataclasses.replace(trace, source={**trace.source, "notes": [note]})
    return limit(trace, **_limits(values))


def _twin(name: str, values: Values) -> Trace:
    defaults = {option.name: option.default for option in CATALOG[name].options}
    if told := [key for key in real.REAL_ONLY if key in values and values[key] != defaults[key]]:
        raise WorkloadError(f"{name}: {told[0]} goes with path=… or hf=…: without them it is the twin, drawn already")
    if values["order"] == "time":
        raise WorkloadError(f"{name}: order=time goes with path=… or hf=…: the twin has no timestamps")
    return load_embedded(name)


def _chat(form: Form) -> Callable[[Values, Asked], Trace]:
    """A chat data set after its protocol, with each prompt's history where that is asked for."""
    load = _data_set(form.workload, real.chat(form))

    def load_history(values: Values, asked: Asked) -> Trace:
        trace = load(values, asked)
        if values["template"]:
            return real.with_template(form, values, asked.model, trace)
        return with_history(trace) if values["history"] else trace

    return load_history


def _chat_texts(form: Form) -> Callable[[Values, str, bool], real.Texts]:
    load = _data_set(form.workload, real.chat(form))

    def texts(values: Values, model: str, as_messages: bool) -> real.Texts:
        if values["template"]:
            used = load(values, Asked(None, 0, model))
            return real.rendered_texts(form, values, model, used, as_messages)
        return real.chat_texts(form)(values, model)

    return texts


def _alone(texts: Callable[[Values, str], real.Texts]) -> Callable[[Values, str, bool], real.Texts]:
    """The prompts of a data set whose requests are no conversations: texts, whoever asks."""
    return lambda values, model, _as_messages: texts(values, model)


def _data_set(name: str, real: Callable[[Values, str], Trace]) -> Callable[[Values, Asked], Trace]:
    """The data set itself where path or hf names it, else its twin; then the protocol."""

    def load(values: Values, asked: Asked) -> Trace:
        trace = real(values, asked.model) if values["path"] or values["hf"] else _twin(name, values)
        return limit(trace, **_limits(values))

    return load


def _synthetic(values: Values, asked: Asked) -> Trace:
    requests = DEFAULT_REQUESTS if asked.requests is None else asked.requests
    return synthesize(**values, requests=requests, seed=asked.seed)


def _file(values: Values, asked: Asked) -> Trace:
    path = _path(values["path"])
    format_ = values["format"] or formats.guess_format(path)
    told = Told(values["unit"], values["block"])
    if format_ in formats.LOADERS:
        return limit(formats.LOADERS[format_](path, told), **_limits(values))
    told.refuse(path, times="conversations have no times here", blocks=NO_BLOCKS)
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
            real.HF,
            Option("source", str, "embedded", "embedded, or hub: V3 from the hub", choices=("embedded", "hub")),
            *_TEXT,
            *_protocol(500, 0),
            _ORDER,
        ),
        _sharegpt,
        texts=_alone(real.share_gpt_texts),
    ),
    WorkloadEntry(
        "longbench",
        "LongBench v2 or v1: prompts of 1000 to 4000 tokens cut from long contexts, 20 tokens out; without path a twin",
        f"{longbench.V2}, {longbench.V1}",
        (
            *real.where(longbench.V2),
            Option("tasks", str, "", "of v1 these tasks, as qasper/hotpotqa; by default all but LongBench-E's"),
            Option("chunk_min", int, 1000, "a prompt, question included, has at least so many tokens", 1),
            Option("chunk_max", int, 4000, "and at most so many; 0: the whole context is one prompt", 0),
            Option("chunk_seed", int, 0, "the seed that draws where contexts are cut (the published one has none)", 0),
            *_protocol(20, 20),
            _ORDER,
        ),
        _data_set("longbench", real.long_bench),
        texts=_alone(real.long_bench_texts),
    ),
    WorkloadEntry(
        "wildchat",
        "WildChat: 3000 conversations of 6 to 12 turns, at most 256 tokens a turn; without path a twin",
        WILDCHAT.data_set,
        (
            *real.where(WILDCHAT.data_set),
            *real.turns(3000, 6, 12),
            real.PAIRS,
            *_protocol(256, 0),
            *_HISTORY,
            dataclasses.replace(
                _ORDER, help=f"{_ORDER.help}; time: by its timestamps", choices=(*_ORDER.choices, "time")
            ),
        ),
        _chat(WILDCHAT),
        texts=_chat_texts(WILDCHAT),
    ),
    WorkloadEntry(
        "numinamath",
        "NuminaMath, answers of 800 to 4000 tokens; forced=4000 as the reproduction ran it; without path a twin",
        NUMINAMATH.data_set,
        (
            *real.where(NUMINAMATH.data_set),
            Option("conversations", int, 0, "the first so many problems only, 0: all", 0),
            Option("step_by_step", bool, True, "prompts end with the line that the published protocol puts there"),
            *_protocol(4000, 0, 800),
            _ORDER,
        ),
        _data_set("numinamath", real.chat(NUMINAMATH)),
        texts=_alone(real.chat_texts(NUMINAMATH)),
    ),
    WorkloadEntry(
        "lmsys",
        "LMSYS-Chat-1M, every turn with its answer as one request; without path a twin",
        LMSYS.data_set,
        (
            *real.where(LMSYS.data_set),
            *real.turns(0, 0, 0),
            real.PAIRS,
            *_protocol(0, 0),
            *_HISTORY,
            _ORDER,
        ),
        _chat(LMSYS),
        texts=_chat_texts(LMSYS),
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
            Option("unit", str, "", "of its times: s, ms, us, ns; by default what the form has", choices=("", *UNITS)),
            Option("block", int, 0, "tokens that a hash id stands for; 0: as the prompts' lengths tell", 0),
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
        told = f"; a file is file:{name}" if "." in name or "/" in name else options.suggest(name, known)
        raise WorkloadError(f"unknown workload {name!r}{told}: known are {', '.join(known)}")
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


def is_elsewhere(workload: str) -> bool:
    """Whether the rows of `name:key=value,…` come from a file or a download, and not with the project."""
    name, told = options.split(workload)
    entry, given = entry_of(name, told)
    return _is_real(options.read(entry.name, entry.options, given))


def _is_real(values: Values) -> bool:
    return bool(values.get("path") or values.get("hf") or values.get("source") == "hub")


def dataset_texts(workload: str, model: str, as_messages: bool = False) -> real.Texts:
    """Place and prompt of every row of `name:key=value,…`; WorkloadError where only lengths are at hand.

    With `template=true` a prompt is a conversation: its messages where the server renders them, else its text.
    """
    name, told = options.split(workload)
    entry, given = entry_of(name, told)
    values = options.read(entry.name, entry.options, given)
    if entry.texts is None or not _is_real(values):
        source = entry.name if entry.texts else "sharegpt"
        raise WorkloadError(
            f"--prompts dataset: {workload} has no text here: give {source}:path=FILE,tokenizer=… "
            "(embedded traces and twins are lengths only)"
        )
    return entry.texts(values, model, as_messages)


def canonical_workload(name: str, given: Mapping[str, str]) -> str:
    """`name:key=value,…` with only what differs from the default, sorted; `file:PATH,…` for a file."""
    entry, given = entry_of(name, given)
    return _canonical(entry, options.read(entry.name, entry.options, given))


def _canonical(entry: WorkloadEntry, values: Values) -> str:
    told = {o.name: values[o.name] for o in entry.options if values[o.name] != o.default}
    first = [options.quoted(told.pop("path"), ",=")] if entry.name == "file" else []
    parts = first + [f"{key}={options.write(told[key])}" for key in sorted(told)]
    # The name of a drift is an option already, so that the others follow a comma.
    return f"{entry.name}{',' if ':' in entry.name else ':'}{','.join(parts)}" if parts else entry.name
