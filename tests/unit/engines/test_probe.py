"""What a server says of itself before it is driven, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.errors import UserError
from harness.drive.endpoint import Endpoint
from harness.engines.serving.probe import Served, find_served, models_of, wait_until_ready
from tests.support.raw_server import json_answer, plain, raw_server

KEY = "canary-key-1234567890"


def listing(*cards: object) -> bytes:
    return json_answer({"object": "list", "data": list(cards)})


def models(answer: bytes, path: str = "", **endpoint: Any) -> list[Served]:
    with raw_server(lambda _, __: [answer]) as server:
        return models_of(Endpoint(server.url + path, **endpoint))


def test_what_a_model_card_says() -> None:
    card = {"id": "m", "root": "/models/m", "owned_by": "vllm", "max_model_len": 4096}
    assert models(listing(card)) == [Served("m", "/models/m", 4096, "vllm")]
    assert models(listing({"id": "m", "root": 7, "max_model_len": -1, "owned_by": None})) == [Served("m")]
    assert Served("m", owner="vllm").tells_tokens
    assert not Served("m", owner="someone").tells_tokens


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 200_000, "is not a list of models"),
        (b'{"data":' + b"[" * 90_000 + b"]" * 90_000 + b"}", "is not a list of models"),
        (b'{"data":[{"id":' + b"9" * 5000 + b"}]}", "(is not a list of models|lists none)"),
        (b'{"data":[{"id":null}]}', "lists none"),
        (b'{"data":[]}', "lists none"),
        (b'{"data":{"id":"m"}}', "is not a list of models"),
        (bytes(range(256)), "is not a list of models"),
    ],
)
def test_what_is_no_list_of_models_is_said_in_a_line(body: bytes, why: str) -> None:
    with pytest.raises(UserError, match=rf"/v1/models names no model \(its answer {why}"):
        models(plain(body))


@pytest.mark.parametrize("name", ["../x\u202e", "a\x1b[31m", "m" * 257, "two\nlines"])
def test_a_name_that_cannot_be_written_down_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="give --model") as caught:
        models(listing({"id": name}))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_a_model_named_by_the_key_is_not_repeated() -> None:
    with pytest.raises(UserError) as caught:
        models(listing({"id": f"org/{KEY.upper()}"}), key=KEY)
    assert KEY not in str(caught.value).lower()


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ({}, "wants a key .*no key here.*--key-env.*--header-env"),
        ({"key": KEY}, "a key was sent as `Authorization: Bearer`.*refuses it .*no key here.*--header-env"),
        ({"headers": {"x-api-key": KEY}}, "a key was sent in x-api-key.*refuses it"),
    ],
)
def test_a_refused_key_says_whether_one_was_sent(endpoint: dict[str, Any], said: str) -> None:
    for status in ("401 No", "403 No"):
        with pytest.raises(UserError, match=said) as caught:
            models(json_answer({"error": {"message": f"no key here, not {KEY}"}}, status), **endpoint)
        assert KEY not in str(caught.value) or not endpoint


@pytest.mark.parametrize(
    ("url", "base", "asked"),
    [
        ("", None, "/v1/models"),
        ("/v1", None, "/v1/models"),
        ("/v3", None, "/v3/models"),
        ("/api/paas/v4/", None, "/api/paas/v4/models"),
        ("/api/v1beta", None, "/api/v1beta/models"),
        ("/gateway", None, "/gateway/v1/models"),
        ("/v1/chat/completions", None, "/v1/models"),
        ("", "/openai/deployments/m/chat/completions", "/openai/deployments/m/models"),
        ("/v1", "/", "/models"),
    ],
)
def test_where_the_api_lies(url: str, base: str | None, asked: str) -> None:
    with raw_server(lambda _, __: [plain(b"", "404 Not Found")]) as server:
        endpoint = Endpoint(server.url + url, chat=True, base=base)
        with pytest.raises(UserError, match=f"{asked} names no model"):
            models_of(endpoint)
    assert server.asked == [f"GET {asked}"]
    assert endpoint.path == asked.replace("/models", "/chat/completions")


def test_a_path_of_chat_needs_the_api_of_chat() -> None:
    with pytest.raises(UserError, match="--api chat"):
        Endpoint("http://127.0.0.1/v1/chat/completions")


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{KEY}@127.0.0.1:80",
        f"http://u:{KEY}@127.0.0.1:80",
        f"http://{KEY}@127.0.0.1:80",
        f"http://u:{KEY}@127.0.0.1:99999",
        f"htp://u:{KEY}@127.0.0.1",
        f"http://127.0.0.1/?api_key={KEY}",
        f"http://127.0.0.1/#{KEY}",
        f"http://u:{KEY}@",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UserError, match="--url") as caught:
        Endpoint(url)
    assert KEY not in str(caught.value)


def test_a_model_that_is_named_is_looked_up_as_far_as_the_server_tells() -> None:
    with raw_server(lambda _, __: [listing({"id": "m", "max_model_len": 64}, {"id": "n"})]) as server:
        assert find_served(Endpoint(server.url), "m").max_model_len == 64
        assert find_served(Endpoint(server.url), "other") == Served("other")
    with raw_server(lambda _, __: [plain(b"{}", "500 No")]) as server:
        assert find_served(Endpoint(server.url), "m") == Served("m")


def test_a_server_that_is_never_ready_is_waited_for_no_longer_than_asked() -> None:
    with raw_server(lambda _, __: [plain(b"", "503 Not Yet")]) as server:
        with pytest.raises(UserError, match=r"not ready after 0.5 s \(/health says 503\)"):
            wait_until_ready(Endpoint(server.url + "/v3"), 0.5)
        assert server.asked[0] == "GET /health"
    with raw_server(lambda _, __: [plain(b"", "404 Not Found")]) as server:
        wait_until_ready(Endpoint(server.url), 0.5)
