"""The model's chat template: found, rendered, counted, and what becomes of conversations by it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.runspec import RunSpec
from harness.drive.endpoint import Endpoint
from harness.engines.client import Client
from harness.engines.endpoint import EndpointEngine
from tests.support import dataset_files as made
from tests.support.models import CHAT, ROLES, write_model
from tests.support.refusals import refusal
from workloads.catalog import dataset_texts, load_workload
from workloads.core.arrivals import Closed
from workloads.core.sessions import turns_before
from workloads.core.stream import Stream
from workloads.core.trace import Trace
from workloads.datasets import rendered
from workloads.prompts.dataset import DatasetPrompts
from workloads.text.chat_template import load_template
from workloads.text.tokenizer import load_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of words and marks that puts <s> before a text of its own accord, and a template beside it."""
    return write_model(tmp_path / "model", CHAT)


def render(folder: Path, *turns: tuple[str, str]) -> str:
    return load_template(str(folder), "").render(made.say(*turns), "here")


def test_messages_are_rendered_as_the_template_says(folder: Path) -> None:
    assert render(folder, ("user", " Hi ")) == "<s><|user|>Hi<|end|>\n<|assistant|>"
    talk = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Ho"), ("user", "skip me"), ("user", "So?")]
    assert render(folder, *talk) == (
        "<s><|system|>Be brief.<|end|>\n<|user|>Hi<|end|>\n<|assistant|>Ho<|end|>\n<|user|>So?<|end|>\n<|assistant|>"
    )
    assert refusal(lambda: render(folder, ("tool", "42"))) == (
        "here: the chat template of tokenizer_config.json fails on it (no role tool): "
        "give the tokenizer of another model, or leave out template=true"
    )


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("  {% if true %}\nA\n  {% endif %}\nB\n", "A\nB"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "<é>"}]'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "<é>!"),
        ("{% for m in messages %}{{ m['content'] }}{% break %}{% endfor %}", "<é>"),
        ("{{ tools is none }} {{ documents is none }} {{ pad_token }}{{ unk_token is defined }}", "True True False"),
        ("{%- set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}", "2"),
    ],
)
def test_what_templates_are_written_for_is_there(tmp_path: Path, template: str, text: str) -> None:
    assert render(write_model(tmp_path / "m", template), ("user", "<é>")) == text


def test_where_a_template_is_found(tmp_path: Path, folder: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    listed = load_template(str(write_model(tmp_path / "listed", named)), "")
    assert (listed.file, listed.render([], "")) == ("tokenizer_config.json", "D")
    first = load_template(str(folder / "tokenizer.json"), "")
    assert first.sha256 == load_template("", str(folder)).sha256, "the model's own, and beside a file"
    (folder / "chat_template.jinja").write_text("J{{ eos_token }}")
    own = load_template(str(folder), "")
    assert (own.file, own.render([], "")) == ("chat_template.jinja", "J<|end|>")
    assert own.sha256 != first.sha256
    other_eos = write_model(tmp_path / "eos", CHAT, eos_token=ROLES[0])
    assert load_template(str(other_eos), "").sha256 != first.sha256, "what it renders is another text"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (None, "no chat template: no chat_template.jinja beside its tokenizer.json, and no chat_template in its"),
        ([{"name": "tool_use", "template": "T"}], "no chat template"),
        ("{% for %}", "the chat template of its tokenizer_config.json cannot be read (line 1: "),
        ("\ud800", "cannot be read"),
    ],
)
def test_a_template_that_is_none_is_refused(tmp_path: Path, template: Any, told: str) -> None:
    folder = write_model(tmp_path / "m", template)
    line = refusal(lambda: load_template(str(folder), "", "lmsys:path=FILE,"))
    assert told in line
    assert "give lmsys:path=FILE,tokenizer=FOLDER of a model that chats, or leave out template=true" in line


def test_files_that_are_damaged_are_refused(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    assert "the chat template of its chat_template.jinja cannot be read" in refusal(lambda: render(folder))
    (folder / "tokenizer_config.json").write_text("[")
    assert "its tokenizer_config.json is no JSON object" in refusal(lambda: render(folder))
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert "no chat template" in refusal(lambda: render(folder))
    assert "vocabulary without a chat template" in refusal(lambda: load_template("qwen", ""))


def test_of_the_hub_what_its_cache_holds_is_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    def cached(repo: str, name: str, **_: Any) -> str:
        if not (folder / name).is_file():
            raise LocalEntryNotFoundError(name)
        return str(folder / name)

    def offline(*_: Any, **__: Any) -> None:
        raise OfflineModeIsEnabled("offline")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", cached)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", offline)
    assert load_template("", "some/model").sha256 == load_template(str(folder), "").sha256
    (folder / "chat_template.jinja").write_text("J")
    assert load_template("some/model", "").render([], "") == "J"
    (folder / "tokenizer_config.json").unlink()
    line = refusal(lambda: load_template("some/model", "", "lmsys:hf=X,"))
    assert line.startswith("cannot load tokenizer_config.json of some/model (HF_HUB_OFFLINE is set")
    assert line.endswith("give lmsys:hf=X,tokenizer=FOLDER of a model that chats, or leave out template=true")


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ 1 / 0 }}", "{{ nothing.at.all }}"]
)
def test_a_template_that_misbehaves_is_one_line(tmp_path: Path, template: str) -> None:
    assert "here: the chat template" in refusal(lambda: render(write_model(tmp_path / "m", template), ("user", "x")))


TALKS = (
    made.say(("user", "one"), ("assistant", "first answer"), ("user", "two"), ("assistant", "naïve"), ("user", "three"))
    + made.say(("assistant", "last")),
    made.say(("user", "unanswered")),
    made.say(("system", "S"), ("user", "alone"), ("assistant", "yes")),
    made.say(("assistant", "early"), ("user", "a"), ("user", "b"), ("assistant", "c"), ("User", "d"), ("gpt", "e")),
)


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    rows = [made.lmsys_row(i, talk) for i, talk in enumerate(TALKS)]
    return made.write_parquet(tmp_path / "talks.parquet", made.lmsys_schema(), rows)


@pytest.fixture
def load(talks: Path, folder: Path) -> Callable[..., tuple[Trace, str]]:
    def load(name: str = "lmsys", requests: int | None = None, seed: int = 0, **given: Any) -> tuple[Trace, str]:
        options = {"path": str(talks), "tokenizer": str(folder), "template": "true"}
        options |= {key: str(value) for key, value in given.items()}
        trace = load_workload(name, options, requests=requests, seed=seed, model="none/none")
        return trace, f"{name}:" + ",".join(f"{key}={value}" for key, value in options.items())

    return load


def prompts(trace: Trace, workload: str, as_messages: bool = False) -> list[Any]:
    made_of = dataset_texts(workload, "none/none", as_messages)
    return list(DatasetPrompts(trace, made_of).texts(range(len(trace))))


def test_every_turn_is_as_long_as_the_conversation_up_to_it(load: Callable[..., Any], folder: Path) -> None:
    trace, workload = load()
    texts = prompts(trace, workload)
    start = "<s><|user|>one<|end|>\n<|assistant|>"
    second = f"{start}first answer<|end|>\n<|user|>two<|end|>\n<|assistant|>"
    assert texts == [
        start,
        second,
        f"{second}naïve<|end|>\n<|user|>three<|end|>\n<|assistant|>",
        "<s><|user|>alone<|end|>\n<|assistant|>",
        "<s><|user|>b<|end|>\n<|assistant|>",
        "<s><|user|>b<|end|>\n<|assistant|>c<|end|>\n<|user|>d<|end|>\n<|assistant|>",
    ]
    tokenizer, _ = load_tokenizer(str(folder), "")
    counts = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    assert trace.prompt_tokens.tolist() == counts
    assert counts[0] == 4 + len("one\n"), "special tokens are one each, none is added"
    assert trace.session.tolist() == [0, 0, 0, 2, 3, 3]
    assert turns_before(trace).tolist() == [-1, 0, 1, -1, -1, 4], "each holds what came before it"
    assert trace.source["rendering"] == rendered.RENDERING
    assert trace.source["template"] == {
        "file": "tokenizer_config.json",
        "sha256": load_template(str(folder), "").sha256,
    }
    plain, _ = load(template="false")
    assert "template" not in plain.source
    assert plain.prompt_tokens.tolist() == [3, 3, 5, 5, 1, 1], "the published protocol's lengths"
    assert plain.output_tokens.tolist() == trace.output_tokens.tolist()


def test_messages_are_what_is_rendered(load: Callable[..., Any], folder: Path) -> None:
    trace, workload = load()
    template = load_template(str(folder), "")
    messages = prompts(trace, workload, as_messages=True)
    assert [template.render(one, "") for one in messages] == prompts(trace, workload)
    assert messages[2] == TALKS[0][:5]
    assert messages[5][1] == {"role": "assistant", "content": "c"}


def test_bodies_carry_the_history(load: Callable[..., Any]) -> None:
    trace, workload = load()
    spec = RunSpec("unknown", "none/none", "external", workload, "endpoint", sessions=True)
    stream = Stream(trace, Closed(2), None, think_ns=0)

    def bodies(api: str) -> list[dict[str, Any]]:
        engine = EndpointEngine(spec, stream, Endpoint("http://127.0.0.1:1"), Client(api, "dataset"))
        return [json.loads(one.body) for one in engine.requests.planned()]

    texts = bodies("completions")
    assert [body["prompt"] for body in texts] == prompts(trace, workload)
    assert not any(body["add_special_tokens"] for body in texts)
    chats = bodies("chat")
    assert [body["messages"] for body in chats] == prompts(trace, workload, as_messages=True)
    assert not any("add_special_tokens" in body or "prompt" in body for body in chats)


def test_history_is_what_the_protocol_leaves(load: Callable[..., Any]) -> None:
    trace, workload = load(output_cap=3)
    assert trace.output_tokens.max() == 3
    last = prompts(trace, workload)[2]
    assert "<|assistant|>fir<|end|>" in last
    assert "<|assistant|>naï<|end|>" in last, "ï is two bytes, and a cut goes round it"
    trace, workload = load(min_prompt_tokens=4)
    assert prompts(trace, workload)[0] == "<s><|user|>three<|end|>\n<|assistant|>", "left out, so not in the history"
    trace, workload = load(max_turns=1, min_turns=2)
    assert trace.session.tolist() == [0, 3]
    longer, workload = load(forced=40)
    assert longer.output_tokens.tolist() == [40] * 6
    assert longer.prompt_tokens.tolist() == load()[0].prompt_tokens.tolist(), "answers are the data set's own"
    assert "leave out forced=" in refusal(lambda: turns_before(longer))
    window, workload = load(requests=2, seed=1)
    assert [text.count("<|user|>") for text in prompts(window, workload)] == [3, 1], "the history is the whole one"
    assert load(history="true")[0].digest == load()[0].digest


def test_wildchat_in_the_order_of_time(tmp_path: Path, load: Callable[..., Any]) -> None:
    from datetime import UTC, datetime

    def at(second: int) -> datetime:
        return datetime.fromtimestamp(1_681_084_800 + second, tz=UTC)

    first: made.Turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "timestamp": at(5)},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "timestamp": at(20)},
    ]
    other: made.Turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "timestamp": at(10)}]
    rows = [made.wildchat_row(i, talk) for i, talk in enumerate((first, other))]
    path = made.write_parquet(tmp_path / "w.parquet", made.wildchat_schema(), rows)
    trace, workload = load("wildchat", path=path, order="time", min_turns=1)
    assert trace.session.tolist() == [0, 1, 0]
    last = "<s><|user|>a<|end|>\n<|assistant|>b<|end|>\n<|user|>c<|end|>\n<|assistant|>"
    one, two = (f"<s><|user|>{said}<|end|>\n<|assistant|>" for said in "ax")
    assert prompts(trace, workload) == [one, two, last]
    assert trace.timestamp_s.tolist() == [0, 5, 15]


def test_counts_are_kept_for_this_template_alone(
    load: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, _ = load()
    monkeypatch.setattr("workloads.datasets.rendered.count_rows", None)
    assert load()[0].digest == trace.digest, "from the cache"
    monkeypatch.undo()
    monkeypatch.setenv("BENCH_CACHE", str(folder.parent / "cache"))
    (folder / "chat_template.jinja").write_text(CHAT.replace("<|assistant|>", "<|assistant|>."))
    again, _ = load()
    assert (again.prompt_tokens - trace.prompt_tokens).tolist() == [1] * 6
    assert load(output_cap=3)[0].prompt_tokens.max() < again.prompt_tokens.max()


@pytest.mark.usefixtures("_qwen")
def test_what_cannot_be_rendered_is_refused(load: Callable[..., Any], folder: Path, talks: Path) -> None:
    (folder / "chat_template.jinja").write_text(
        "{% if messages | length > 2 %}{{ raise_exception('long') }}{% endif %}x"
    )
    line = refusal(load)
    assert line.startswith("lmsys, conversation 0, turn 1: the chat template of chat_template.jinja fails on it (long)")
    (folder / "chat_template.jinja").write_text("{% if messages | length < 2 %}{{ messages[0].content }}{% endif %}")
    assert "conversation 0, turn 1: the chat template of chat_template.jinja makes nothing of it" in refusal(load)
    (folder / "chat_template.jinja").unlink()
    assert "template goes with path=… or hf=…" in refusal(lambda: load(path="", tokenizer=""))
    assert "vocabulary without a chat template" in refusal(lambda: load(tokenizer="qwen"))
    trace, workload = load()
    made.write_parquet(talks, made.lmsys_schema(), [made.lmsys_row(0, TALKS[2])])
    assert "is not there any more" in refusal(lambda: prompts(trace, workload))
    _, plain = load(template="false")
    alone = refusal(lambda: prompts(trace, f"{plain},history=true"))
    assert "leave out history=true, or give template=true" in alone
