"""Every workload by name: what it is, where it comes from, its options, how it is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from workloads import loaders
from workloads.core import options
from workloads.core.errors import WorkloadError
from workloads.core.options import Option
from workloads.core.reading import spelled
from workloads.core.trace import Trace
from workloads.datasets import longbench, real, sharegpt
from workloads.datasets.conversations import LMSYS, NUMINAMATH, WILDCHAT
from workloads.lengths.drift import LENGTH_DRIFTS, Drift
from workloads.lengths.drift_rates import RATE_DRIFTS
from workloads.lengths.filters import select
from workloads.lengths.synthetic import LAWS
from workloads.loaders import Load, RunInputs, Texts, Values, protocol
from workloads.traces import formats
from workloads.traces.units import UNITS


@dataclass(frozen=True, slots=True)
class WorkloadEntry:
    """A workload: `load` gets typed options and what the run gives; `windowed` ones go through `select`.

    `texts` gives the data set's own prompts, where it is at hand. `has_twin`: without path or hf a statistical twin
    stands in for the data set, which some of the options say nothing about.
    """

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]
    load: Load
    windowed: bool = True
    texts: Texts | None = None
    has_twin: bool = False


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
DRIFT = "drift"


def _drift(kind: Drift) -> WorkloadEntry:
    load = loaders.drift(kind)
    return WorkloadEntry(f"{DRIFT}:{kind.name}", kind.summary, kind.source, kind.options, load, windowed=False)


_ENTRIES = (
    WorkloadEntry(
        "sharegpt",
        "ShareGPT, every human→gpt pair as one request; embedded lengths, or the real file",
        f"{sharegpt.HUB_DATASET}: {sharegpt.HUB_FILE}",
        (
            Option("path", str, "", "the real file; by default the embedded lengths"),
            *real.HUB,
            Option("source", str, "embedded", "embedded, or hub: V3 from the hub", choices=("embedded", "hub")),
            *_TEXT,
            *protocol(500, 0),
            Option(
                "natural", int, 0, "outputs as a model stops by itself: so many tokens in the mean, 0: the data's", 0
            ),
            _ORDER,
        ),
        loaders.share_gpt,
        texts=loaders.alone(real.share_gpt_texts),
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
            *protocol(20, 20),
            _ORDER,
        ),
        loaders.twin_or_real("longbench", real.long_bench),
        texts=loaders.alone(real.long_bench_texts),
        has_twin=True,
    ),
    WorkloadEntry(
        "wildchat",
        "WildChat: 3000 conversations of 6 to 12 turns, at most 256 tokens a turn; without path a twin",
        WILDCHAT.data_set,
        (
            *real.where(WILDCHAT.data_set),
            *real.turns(3000, 6, 12),
            real.PAIRS,
            *protocol(256, 0),
            *_HISTORY,
            dataclasses.replace(
                _ORDER, help=f"{_ORDER.help}; time: by its timestamps", choices=(*_ORDER.choices, "time")
            ),
        ),
        loaders.chat(WILDCHAT),
        texts=loaders.chat_texts(WILDCHAT),
        has_twin=True,
    ),
    WorkloadEntry(
        "numinamath",
        "NuminaMath, answers of 800 to 4000 tokens; forced=4000 as the reproduction ran it; without path a twin",
        NUMINAMATH.data_set,
        (
            *real.where(NUMINAMATH.data_set),
            Option("conversations", int, 0, "the first so many problems only, 0: all", 0),
            Option("step_by_step", bool, True, "prompts end with the line that the published protocol puts there"),
            *protocol(4000, 0, 800),
            _ORDER,
        ),
        loaders.twin_or_real("numinamath", real.chat(NUMINAMATH)),
        texts=loaders.alone(real.chat_texts(NUMINAMATH)),
        has_twin=True,
    ),
    WorkloadEntry(
        "lmsys",
        "LMSYS-Chat-1M, every turn with its answer as one request; without path a twin",
        LMSYS.data_set,
        (
            *real.where(LMSYS.data_set),
            *real.turns(0, 0, 0),
            real.PAIRS,
            *protocol(0, 0),
            *_HISTORY,
            _ORDER,
        ),
        loaders.chat(LMSYS),
        texts=loaders.chat_texts(LMSYS),
        has_twin=True,
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
        loaders.synthetic,
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
            *protocol(0, 0),
            _ORDER,
        ),
        loaders.own_file,
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
        return _drift_of(given.pop("path", "").lower()), given
    if name not in CATALOG:
        known = [*(known for known in CATALOG if ":" not in known), DRIFT]
        hint = f"; a file is file:{name}" if "." in name or "/" in name else options.suggest(name, known)
        raise WorkloadError(f"unknown workload {name!r}{hint}: known are {', '.join(known)}")
    return CATALOG[name], given


def is_name(text: str) -> bool:
    """Whether a text is the name of a workload, without options."""
    return text.strip().lower() in CATALOG or text.strip().lower() == DRIFT


def _drift_of(kind: str) -> WorkloadEntry:
    name = f"{DRIFT}:{kind}"
    if name not in CATALOG:
        drifts = [known.partition(":")[2] for known in CATALOG if known.startswith(f"{DRIFT}:")]
        why = f"no drift {spelled(kind, 60)!r}{options.suggest(kind, drifts)}" if kind else "drift needs a name"
        raise WorkloadError(f"{why}: write drift:NAME,option=…; known are {', '.join(drifts)}")
    return CATALOG[name]


def _read(workload: str) -> tuple[WorkloadEntry, Values]:
    """The entry and typed options of `name:key=value,…`."""
    entry, given = entry_of(*options.split(workload))
    return entry, options.read(entry.name, entry.options, given)


def load_workload(name: str, given: Mapping[str, str], *, requests: int | None, seed: int, model: str) -> Trace:
    """The trace a run replays: options read, rows filtered, the window of this seed taken.

    `requests` None takes every row (of `synthetic`: 4000). Raises WorkloadError, one line, for whatever the
    user can mend.
    """
    entry, given = entry_of(name, given)
    values = options.read(entry.name, entry.options, given)
    if entry.has_twin and not loaders.is_real(values):
        _check_twin(entry, values)

    def load_other(other: str, rows: int) -> Trace:
        return load_workload(other, {}, requests=rows, seed=seed, model=model)

    trace = entry.load(values, RunInputs(requests, seed, model, load_other))
    if entry.windowed:
        trace = select(trace, requests, seed, values["order"])
    source = {**trace.source, "workload": _canonical(entry, values)}
    return dataclasses.replace(trace, name=entry.name, source=source)


def _check_twin(entry: WorkloadEntry, values: Values) -> None:
    """WorkloadError where an option asks for what only the data set itself can answer."""
    real.check_beside_hf(values, entry.name)
    default = {option.name: option.default for option in entry.options}
    for key in real.REAL_ONLY:
        if key in values and values[key] != default[key]:
            raise WorkloadError(
                f"{entry.name}: {key} goes with path=… or hf=…: without them it is the twin, drawn already"
            )
    if values["order"] == "time":
        raise WorkloadError(f"{entry.name}: order=time goes with path=… or hf=…: the twin has no timestamps")


def is_elsewhere(workload: str) -> bool:
    """Whether the rows of `name:key=value,…` come from a file or a download, and not with the project."""
    _, values = _read(workload)
    return loaders.is_real(values)


def dataset_texts(workload: str, model: str, as_messages: bool = False) -> real.Texts:
    """Place and prompt of every row of `name:key=value,…`; WorkloadError where only lengths are at hand.

    With `template=true` a prompt is a conversation: its messages where the server renders them, else its text.
    """
    entry, values = _read(workload)
    if entry.texts is None or not loaders.is_real(values):
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
    changed = {option.name: values[option.name] for option in entry.options if values[option.name] != option.default}
    first = [options.quoted(changed.pop("path"), ",=")] if entry.name == "file" else []
    parts = first + [f"{key}={options.write(changed[key])}" for key in sorted(changed)]
    # The name of a drift is an option already, so that the others follow a comma.
    return f"{entry.name}{',' if ':' in entry.name else ':'}{','.join(parts)}" if parts else entry.name
