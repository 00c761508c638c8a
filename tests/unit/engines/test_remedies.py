"""The hint after a failed warm-up is the option that fits what the server said."""

from __future__ import annotations

import pytest

from harness.core.errors import UserError
from harness.drive.bodies import BodyForm
from harness.drive.endpoint import Endpoint, headers_from
from harness.engines.client import Client, read_form
from harness.engines.remedies import remedy_for

ENDPOINT = Endpoint("http://127.0.0.1/v3", key="k")
FIELDS = (
    "model",
    "prompt",
    "max_tokens",
    "temperature",
    "stream",
    "stream_options",
    "ignore_eos",
    "seed",
    "vllm_xargs",
)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("http_400: unknown parameter: ignore_eos", "--no-ignore-eos"),
        ("http_422: extra inputs are not permitted: seed", "--no-field seed"),
        ("http_400: Unrecognized request argument supplied: stream_options", "--no-field stream_options --accept"),
        ("http_400: max_tokens is not supported, use max_completion_tokens", "--length-field max_completion_tokens"),
        ("http_400: vllm_xargs: unknown", "--lengths none"),
        ("http_400: Unsupported value: 'temperature' does not support 0", "--no-field temperature"),
        ("http_400: Token id 31999 is out of vocabulary", "--vocabulary"),
        ("http_400: the model is asleep", ""),
        ("http_404: no route", "asked was /v3/completions"),
        ("http_401: no", "a key was sent"),
        ("no_done: the stream ended without [DONE]", "--accept no_done"),
        ("no_usage: the server gave no usage", "--accept no_usage"),
        ("short: 3 tokens where 16 were asked for", "--no-ignore-eos"),
        ("timeout: no connection", ""),
        ("http_500: seed", ""),
    ],
)
def test_the_hint_fits(error: str, hint: str) -> None:
    remedy = remedy_for(error, ENDPOINT, FIELDS)
    assert hint in remedy
    assert bool(hint) == bool(remedy)


def test_fields_are_json_or_text() -> None:
    form = read_form("max_completion_tokens", ["a=1", "b=x=y", 'c={"d": [1]}', "e="], ["seed"])
    assert form == BodyForm("max_completion_tokens", {"a": 1, "b": "x=y", "c": {"d": [1]}, "e": ""}, ("seed",))
    for bad in (["a"], ["=1"]):
        with pytest.raises(UserError, match="--field"):
            read_form("max_tokens", bad, [])
    for name in ("model", "prompt", "messages", "stream"):
        with pytest.raises(UserError, match=f"--no-field {name}"):
            read_form("max_tokens", [], [name])


def test_what_decides_a_run_names_these_only_where_they_were_asked_for() -> None:
    assert not {"fields", "left_out", "length_field", "accept"} & Client().decides().keys()
    asked = Client(form=read_form("n", ["a=1"], ["seed"]), accept=("no_done",)).decides()
    assert asked["length_field"] == "n"
    assert asked["fields"] == {"a": 1}
    assert asked["left_out"] == ("seed",)
    assert asked["accept"] == ("no_done",)


def test_headers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "secret-1")
    assert headers_from(["x-api-key=GATEWAY_KEY"]) == {"x-api-key": "secret-1"}
    for bad in ("x-api-key", "=GATEWAY_KEY", "x api=GATEWAY_KEY", "x-api-key=", "x-api-key=NOT_THERE"):
        with pytest.raises(UserError, match="--header-env"):
            headers_from([bad])
    for name in ("Host", "content-length", "Transfer-Encoding"):
        with pytest.raises(UserError, match="not the name of a header"):
            Endpoint("http://x", headers={name: "1"})


def test_a_header_of_the_users_takes_the_keys_place() -> None:
    assert Endpoint("http://x", key="k", headers={"authorization": "Basic b"}).added() == {"authorization": "Basic b"}
    assert Endpoint("http://x", key="k").added() == {"Authorization": "Bearer k"}
