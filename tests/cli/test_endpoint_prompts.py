"""What is sent to a server: a data set's own text, and conversations as the model's template renders them."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.commands import Bench, Serve
from tests.support.dataset_files import lmsys_rows, lmsys_schema, write_parquet
from tests.support.models import CHAT, write_model


def test_the_data_sets_own_text_is_sent(bench: Bench, serve: Serve, tmp_path: Path, bytes_tokenizer: Path) -> None:
    turns = [{"from": "human", "value": f"Question {i}, please?"} for i in range(3)]
    answers = [{"from": "gpt", "value": "An answer of some words."}] * 3
    record = {"id": "a", "conversations": [turn for pair in zip(turns, answers, strict=True) for turn in pair]}
    (tmp_path / "s.json").write_text(json.dumps([record]))
    url, _ = serve("--tokenizer", str(bytes_tokenizer))
    workload = f"sharegpt:path={tmp_path / 's.json'},tokenizer={bytes_tokenizer}"
    for api in ("completions", "chat"):
        result = bench("run", "--url", url, "--workload", workload, "--prompts", "dataset", "--api", api, "--json")
        assert result.code == 0, result.err
        (run,) = result.json["runs"]
        assert run["counts"]["completed"] == 3
        if api == "completions":
            assert not any("another length" in note for note in run["notes"]), run["notes"]
    chats = write_parquet(tmp_path / "l.parquet", lmsys_schema(), lmsys_rows(3, seed=8))
    workload = f"lmsys:path={chats},tokenizer={bytes_tokenizer},forced=4"
    result = bench(
        "run", "--url", url, "--workload", workload, "--prompts", "dataset", "--api", "completions", "--json"
    )
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert run["counts"]["completed"] == run["counts"]["requests"] >= 3
    assert not any("another length" in note for note in run["notes"]), run["notes"]
    refused = bench("run", "--url", url, "--workload", f"{workload},history=true", "--prompts", "dataset")
    assert refused.code == 2
    assert "leave out history=true, or give template=true" in refused.err
    refused = bench("run", "--url", url, "--workload", workload, "--prompts", "dataset", "--sessions")
    assert refused.code == 2
    assert "take wildchat or lmsys with template=true" in refused.err
    refused = bench("run", "--url", url, "--workload", "lmsys", "--prompts", "dataset")
    assert refused.code == 2
    assert "lmsys has no text here: give lmsys:path=FILE,tokenizer=…" in refused.err
    refused = bench("run", "--url", url, "--workload", "sharegpt", "--prompts", "dataset")
    assert refused.code == 2
    assert "sharegpt:path=FILE" in refused.err


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_conversation_is_sent_as_the_models_template_renders_it(
    bench: Bench, serve: Serve, tmp_path: Path, api: str
) -> None:
    model = write_model(tmp_path / "model", CHAT)
    talks = list(lmsys_rows(40, seed=8))
    chats = write_parquet(tmp_path / "l.parquet", lmsys_schema(), talks)
    workload = f"lmsys:path={chats},tokenizer={model},output_cap=4,min_turns=2,template=true"
    url, server = serve("--tokenizer", str(model), "--log", "server.csv")
    sent = ("run", "--url", url, "--workload", workload, "--prompts", "dataset", "--api", api, "--sessions")
    result = bench(*sent, "--concurrency", "3", "--json")
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert run["counts"]["completed"] == run["counts"]["requests"] >= 20
    rows = pq.read_table(tmp_path / run["dir"] / "requests.parquet").to_pylist()
    by_turn = sorted((row["session"], row["turn"], row) for row in rows)
    for (session, turn, row), (after, later, following) in pairwise(by_turn):
        if session == after:
            assert later == turn + 1
            assert following["prompt_tokens"] > row["prompt_tokens"] + row["output_tokens"]
            assert following["sent_s"] >= row["done_s"], "a turn waits for the answer before it"
    assert any("the data set's own earlier answers" in note for note in run["notes"])
    # What came in, by the server's own count: bytes, 1 a mark. It has no template, and puts <s> before a chat.
    expected = []
    for turns in (talk["conversation"] for talk in talks if len(talk["conversation"]) >= 4):
        for end in range(1, len(turns), 2):
            said = [one["content"][: 4 if one["role"] == "assistant" else None] for one in turns[:end]]
            if api == "chat":
                expected.append(sum(map(len, said)) + len(said))
            else:
                expected.append(sum(len(one.strip()) + 3 for one in said) + 2)
    server.terminate()
    server.wait(60)
    with (tmp_path / "server.csv").open() as log:
        came = [int(row["prompt_tokens"]) for row in csv.DictReader(log)]
    assert sorted(came[-len(expected) :]) == sorted(expected)
    assert any("another length" in note for note in run["notes"]) == (api == "chat"), run["notes"]
