"""The data sets themselves by their options: which files, which part of them, counted with which tokenizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from workloads.core.errors import WorkloadError
from workloads.core.options import Option, write
from workloads.core.trace import Trace
from workloads.datasets import conversations, hub_rows, longbench, rendered, shards, sharegpt
from workloads.datasets.conversations import ChatForm, ChatPart
from workloads.datasets.counting import Reading
from workloads.datasets.shards import Layout, Shards
from workloads.prompts.dataset import Prompt
from workloads.text.chat_template import ChatTemplate, load_template
from workloads.text.tokenizer import build, tokenizer_json

Values = Mapping[str, Any]
# The place of a row, as `workloads.prompts.dataset.places` says it, and its prompt.
Texts = Iterator[tuple[tuple[int, int], Prompt]]

PAIRS = Option("pairs", str, "all", "all pairs of a conversation or the first only", choices=("all", "first"))
# What the options beside hf say goes to the library `datasets`.
BESIDE_HF = (
    Option("config", str, "", "of hf: the configuration; by default its only one, or the one its card names"),
    Option("split", str, "", "of hf: the split; by default train, or the only one"),
    Option("rows", int, 0, "of hf: the first so many rows, no more is streamed; 0: all", 0),
    Option("streaming", bool, True, "of hf: false downloads it whole, into the cache of the library datasets"),
)
HUB = (
    Option("hf", str, "", "id or id@revision of the data set on the Hugging Face hub, or ./FOLDER in its layout"),
    *BESIDE_HF,
)
COUNTED = (
    Option("tokenizer", str, "", "path, Hugging Face id, or qwen; by default the model's"),
    Option("allow_truncated", bool, False, "take what is whole of a file that is cut off"),
)
# What only the data set itself can answer: its twin refuses them.
REAL_ONLY = (
    *("tokenizer", "allow_truncated", "conversations", "min_turns", "max_turns", "step_by_step", "template"),
    *("tasks", "chunk_min", "chunk_max", "chunk_seed"),
)


def where(hub_id: str) -> tuple[Option, ...]:
    """The options that name the data set and how it is counted."""
    path = Option("path", str, "", f"the data set itself ({hub_id}): file, folder or pattern; by default its twin")
    return (path, *HUB, *COUNTED)


def turns(taken: int, least: int, most: int) -> tuple[Option, ...]:
    """The options that choose conversations, with a protocol's numbers as defaults."""
    return (
        Option("conversations", int, taken, "the first so many conversations with enough turns, 0: all", 0),
        Option("min_turns", int, least, "conversations of fewer prompts with an answer are left out", 0),
        Option("max_turns", int, most, "conversations are cut after so many, 0: never", 0),
    )


def _before(name: str, values: Values) -> str:
    """What stands before the option `tokenizer`, for errors to say."""
    if values["path"]:
        return f"{name}:path=FILE,"
    beside = "".join(f"{key}={write(values[key])}," for key in _beside_hf(values))
    return f"{name}:hf={values['hf']},{beside}" if values["hf"] else f"{name}:source=hub,{beside}"


def _beside_hf(values: Values) -> list[str]:
    """The options beside hf that are given."""
    return [option.name for option in BESIDE_HF if values[option.name] != option.default]


def check_beside_hf(values: Values, name: str) -> None:
    """WorkloadError where an option is given that says something of hf, and hf is not."""
    for key in _beside_hf(values):
        raise WorkloadError(f"{name}: {key} goes with hf=ID, and no hf is given")


def _files(values: Values, name: str, layout: Layout, hf: str = "") -> Shards:
    """The files that `path` or `hf` names, of which one is given."""
    hf = values["hf"] or hf
    if values["path"] and hf:
        raise WorkloadError(f"{name}: path and hf are both given: give one of them")
    if values["path"]:
        check_beside_hf(values, name)
        return shards.local(values["path"])
    beside = {option.name: values[option.name] for option in BESIDE_HF}
    return hub_rows.take(hub_rows.asked(name, hf, **beside), layout)


def _chat_files(values: Values, form: ChatForm) -> Shards:
    return _files(values, form.workload, conversations.layout(form))


def _share_gpt_files(values: Values) -> Shards:
    hub = "" if values["path"] or values["hf"] else sharegpt.HUB_DATASET
    found = _files(values, "sharegpt", sharegpt.LAYOUT, hub)
    if len(found.files) > 1:
        raise WorkloadError(f"sharegpt: {len(found.files)} files: ShareGPT is one: give sharegpt:path=FILE")
    return found


def share_gpt(values: Values, model: str) -> Trace:
    """Every pair of ShareGPT's one file; `source=hub` is V3 from the hub."""
    found = _share_gpt_files(values)
    trace = sharegpt.load(
        found.files[0],
        tokenizer=values["tokenizer"],
        model=model,
        allow_truncated=values["allow_truncated"],
        before=_before("sharegpt", values),
    )
    source = trace.source | dict(found.origin)
    if source.get("hub") in sharegpt.DATA_SETS:
        source["data_set"] = source["hub"]
    notices = [*found.notices, *source.get("notices", [])]
    return dataclasses.replace(trace, source=source | ({"notices": notices} if notices else {}))


def share_gpt_texts(values: Values, _model: str) -> Texts:
    """The prompts of ShareGPT's file, by (conversation, pair)."""
    pairs = sharegpt.read_pairs(_share_gpt_files(values).files[0], Reading(), values["allow_truncated"])
    return ((pair[:2], pair.prompt) for pair in pairs)


def chat_part(values: Values) -> ChatPart:
    """Which part of a chat data set the options ask for."""
    suffix = conversations.STEP_BY_STEP if values.get("step_by_step") else ""
    return ChatPart(values["conversations"], values.get("min_turns", 0), values.get("max_turns", 0), suffix)


def chat(form: ChatForm) -> Callable[[Values, str], Trace]:
    """The loader of a chat data set: every pair that its options take."""

    def load(values: Values, model: str) -> Trace:
        return conversations.load(
            _chat_files(values, form),
            form,
            chat_part(values),
            tokenizer=values["tokenizer"],
            model=model,
            allow_truncated=values["allow_truncated"],
            by_time=values["order"] == "time",
            before=_before(form.workload, values),
        )

    return load


def chat_texts(form: ChatForm) -> Callable[[Values, str], Texts]:
    """The prompts of a chat data set, each standing alone as it was counted."""

    def texts(values: Values, _model: str) -> Texts:
        if values.get("history"):
            raise WorkloadError(
                f"{form.workload}: prompts from the data set stand alone, turn by turn: leave out history=true, or "
                "give template=true, which renders the history by the model's chat template"
            )
        part = chat_part(values)
        for session, pairs, _ in conversations.taken(
            _chat_files(values, form), form, part, Reading(), values["allow_truncated"]
        ):
            for turn, pair in enumerate(pairs):
                yield (session, turn), pair.prompt + part.suffix

    return texts


def _rendering(form: ChatForm, values: Values, model: str) -> tuple[rendered.ConversationFiles, ChatTemplate]:
    """What renders a chat data set's conversations: its files, its tokenizer, the template beside that."""
    before = _before(form.workload, values)
    template = load_template(values["tokenizer"], model, before)
    content = tokenizer_json(values["tokenizer"], model, before)
    files = rendered.ConversationFiles(
        _chat_files(values, form),
        form,
        chat_part(values),
        build(content, values["tokenizer"] or model, before),
        values["allow_truncated"],
    )
    return files, template


def with_template(form: ChatForm, values: Values, model: str, used: Trace) -> Trace:
    """The trace `used`, filtered and capped, with each prompt as long as its rendered conversation."""
    return rendered.with_template(used, *_rendering(form, values, model))


def rendered_texts(form: ChatForm, values: Values, model: str, used: Trace, as_messages: bool) -> Texts:
    """The prompts of the trace `used`: each conversation up to the turn, rendered, or as messages for a chat server."""
    files, template = _rendering(form, values, model)
    yield from files.messages(used) if as_messages else rendered.texts(used, files, template)


def _long_bench(values: Values, model: str) -> dict[str, Any]:
    """What both of LongBench's readings take, its files apart."""
    low, high = values["chunk_min"], values["chunk_max"]
    if high and not longbench.LEAST_CONTEXT <= low <= high:
        raise WorkloadError(
            f"longbench: chunk_min={low}, chunk_max={high}: give {longbench.LEAST_CONTEXT} ≤ chunk_min ≤ chunk_max, "
            "or chunk_max=0 for whole contexts"
        )
    return {
        "tasks": values["tasks"],
        "pieces": longbench.Pieces(low, high, values["chunk_seed"]),
        "tokenizer": values["tokenizer"],
        "model": model,
        "allow_truncated": values["allow_truncated"],
        "before": _before("longbench", values),
    }


def long_bench(values: Values, model: str) -> Trace:
    """Pieces of LongBench's contexts as prompts, or whole contexts."""
    return longbench.load(_files(values, "longbench", longbench.LAYOUT), **_long_bench(values, model))


def long_bench_texts(values: Values, model: str) -> Texts:
    """The prompts of LongBench, by (record, piece)."""
    return longbench.texts(_files(values, "longbench", longbench.LAYOUT), **_long_bench(values, model))
