"""The size of a vocabulary as a server tells it: by the folder that it names, or by which ids it knows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.drive.endpoint import Endpoint
from harness.engines.serving.probe import Served
from harness.engines.serving.vocabulary import vocabulary_of
from tests.support.raw_server import json_answer, plain, raw_server

NOWHERE = Endpoint("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"vocab_size": 5000}, 5000),
        ({"text_config": {"vocab_size": 6000}}, 6000),
        ({"vocab_size": -1}, None),
        ({"vocab_size": 10**9}, None),
        ({"vocab_size": "5000"}, None),
        ({}, None),
        ([], None),
        ({"text_config": 7}, None),
    ],
)
def test_of_a_folder_that_the_server_names(config: object, size: int | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert vocabulary_of(NOWHERE, Served("m", str(tmp_path))) == size


def test_what_is_no_file_of_settings_is_left(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    for root in (str(tmp_path), str(tmp_path / "none"), "org/model", "a\0b", "", None):
        assert vocabulary_of(NOWHERE, Served("m", root)) is None


@pytest.mark.parametrize("size", [256, 257, 1000, 32_000, 151_936])
def test_of_the_ids_that_a_server_knows(size: int) -> None:
    def detokenize(asked: str, body: bytes) -> list[bytes]:
        assert asked == "POST /detokenize"
        (token,) = json.loads(body)["tokens"]
        return [json_answer({"prompt": "x"}) if token < size else json_answer({}, "400 Bad Request")]

    with raw_server(detokenize) as server:
        assert vocabulary_of(Endpoint(server.url + "/v1"), Served("m")) == size
        assert len(server.asked) < 30


@pytest.mark.parametrize(
    "answer", [plain(b"", "404 Not Found"), json_answer({"prompt": ""}), json_answer({}, "400 No")]
)
def test_a_server_that_cannot_be_asked_says_nothing(answer: bytes) -> None:
    with raw_server(lambda _, __: [answer]) as server:
        assert vocabulary_of(Endpoint(server.url), Served("m")) is None
        assert len(server.asked) <= 2
