"""How each workload is loaded: from its options, and from what a run gives besides them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.core.errors import WorkloadError
from workloads.core.options import Option
from workloads.core.trace import Trace
from workloads.datasets import real, sharegpt
from workloads.datasets.conversations import ChatForm
from workloads.lengths.drift import Drift, DriftInputs
from workloads.lengths.embedded import load_embedded
from workloads.lengths.filters import limit, with_history
from workloads.lengths.synthetic import synthesize
from workloads.traces import formats
from workloads.traces.file_options import NO_BLOCKS, FileOptions

Values = Mapping[str, Any]
DEFAULT_REQUESTS = 4000


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What a run gives a workload besides its options.

    `requests` is None where nobody says how many. `load` loads another workload's first so many rows by its name, for
    a drift that takes its lengths from it.
    """

    requests: int | None
    seed: int
    model: str
    load: Callable[[str, int], Trace]


Load = Callable[[Values, RunInputs], Trace]
# Of options, model, and whether a conversation is wanted as messages.
Texts = Callable[[Values, str, bool], real.Texts]


def protocol(cap: int, forced: int, min_output: int = 1) -> tuple[Option, ...]:
    """The options that filter and cap, with a published protocol's numbers as defaults."""
    return (
        Option("output_cap", int, cap, "outputs cut at this many tokens, 0: uncut", 0),
        Option("forced", int, forced, "every output exactly this many tokens, 0: the data set's own", 0),
        Option("min_prompt_tokens", int, 1, "shorter prompts are left out", 1),
        Option("min_output_tokens", int, min_output, "shorter outputs, as counted, are left out", 1),
        Option("max_prompt_tokens", int, 0, "longer prompts are left out, 0: none", 0),
    )


_LIMITS = ("pairs", "natural", *(option.name for option in protocol(0, 0)))


def _limited(trace: Trace, values: Values) -> Trace:
    return limit(trace, **{key: value for key, value in values.items() if key in _LIMITS})


def is_real(values: Values) -> bool:
    """Whether the options name a data set's own files, and not what travels with the project."""
    return bool(values.get("path") or values.get("hf") or values.get("source") == "hub")


def share_gpt(values: Values, inputs: RunInputs) -> Trace:
    """ShareGPT's real file where the options name it, else the lengths that travel with the project."""
    if is_real(values):
        return _limited(real.share_gpt(values, inputs.model), values)
    if values["tokenizer"] or values["allow_truncated"]:
        raise WorkloadError(
            "sharegpt: tokenizer and allow_truncated go with path=FILE, hf=ID or source=hub; "
            "the embedded trace is counted already, with Qwen's vocabulary"
        )
    real.check_beside_hf(values, "sharegpt")
    trace = load_embedded("sharegpt")
    if inputs.model and "qwen" not in inputs.model.lower():
        note = f"lengths are counted with Qwen's vocabulary, the model is {inputs.model}"
        trace = dataclasses.replace(trace, source={**trace.source, "notes": [note]})
    return _limited(trace, values)


def twin_or_real(name: str, load_real: Callable[[Values, str], Trace]) -> Load:
    """The data set itself where path or hf names it, else its twin; then the protocol."""

    def load(values: Values, inputs: RunInputs) -> Trace:
        trace = load_real(values, inputs.model) if is_real(values) else load_embedded(name)
        return _limited(trace, values)

    return load


def chat(form: ChatForm) -> Load:
    """A chat data set after its protocol, with each prompt's history where that is asked for."""
    load_turns = twin_or_real(form.workload, real.chat(form))

    def load(values: Values, inputs: RunInputs) -> Trace:
        trace = load_turns(values, inputs)
        if values["template"]:
            return real.with_template(form, values, inputs.model, trace)
        return with_history(trace) if values["history"] else trace

    return load


def chat_texts(form: ChatForm) -> Texts:
    """The prompts of a chat data set: each standing alone, or rendered by the model's chat template."""

    def texts(values: Values, model: str, as_messages: bool) -> real.Texts:
        if values["template"]:
            used = _limited(real.chat(form)(values, model), values)
            return real.rendered_texts(form, values, model, used, as_messages)
        return real.chat_texts(form)(values, model)

    return texts


def alone(texts: Callable[[Values, str], real.Texts]) -> Texts:
    """The prompts of a data set whose requests are no conversations: texts, whoever asks."""
    return lambda values, model, _as_messages: texts(values, model)


def synthetic(values: Values, inputs: RunInputs) -> Trace:
    """Lengths around two means, as many as the run takes."""
    requests = DEFAULT_REQUESTS if inputs.requests is None else inputs.requests
    return synthesize(**values, requests=requests, seed=inputs.seed)


def own_file(values: Values, inputs: RunInputs) -> Trace:
    """A user's own file in the format that is given, or that its content tells."""
    # pathlib's own expanduser raises for an unknown ~user: that is then a file that is not there.
    path = Path(os.path.expanduser(values["path"]))
    format_ = values["format"] or formats.guess_format(path)
    given = FileOptions(values["unit"], values["block"])
    if format_ in formats.LOADERS:
        return _limited(formats.LOADERS[format_](path, given), values)
    given.refuse(path, no_times="conversations have no times here", no_blocks=NO_BLOCKS)
    trace = sharegpt.load(
        path,
        tokenizer=values["tokenizer"],
        model=inputs.model,
        allow_truncated=values["allow_truncated"],
        before="file:PATH,",
    )
    trace = _limited(trace, values)
    source = {key: value for key, value in trace.source.items() if key != "data_set"}
    return dataclasses.replace(trace, source={**source, "kind": "file", "format": "sharegpt"})


def drift(kind: Drift) -> Load:
    """A drift, whose lengths may be those of another workload."""

    def load(values: Values, inputs: RunInputs) -> Trace:
        if values.get("jitter", 0) > 1:
            raise WorkloadError(f"drift:{kind.name}: jitter={values['jitter']} is above 1: lengths would be negative")
        if inputs.requests is not None and inputs.requests < 1:
            raise WorkloadError(f"drift:{kind.name}: {inputs.requests} requests asked for: give 1 or more")
        if inputs.seed < 0:
            raise WorkloadError(f"drift:{kind.name}: seed {inputs.seed} is negative: give 0 or more")

        def lengths(name: str, rows: int) -> Trace:
            if name == "file" or name.startswith("drift"):
                raise WorkloadError(f"drift:{kind.name}: lengths={name}: give a data set's name, such as sharegpt")
            return inputs.load(name, rows)

        return kind.make(values, DriftInputs(inputs.requests, inputs.seed, lengths))

    return load
