"""What servers say of themselves, each at its own place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from harness.drive.endpoint import Endpoint
from harness.engines.serving.server_info import ServerInfo, info_of, version_of
from tests.support.raw_server import json_answer, plain, raw_server

KEY = "canary-key-1234567890"


def at(path: str, value: object) -> Callable[[str, bytes], Iterable[bytes]]:
    """A server that answers there alone."""
    return lambda asked, _: [json_answer(value) if asked == f"GET {path}" else plain(b"{}", "404 Not Found")]


# As their documentation and their own clients have it; SGLang tells its key as well.
SGLANG = {
    "model_path": "/models/qwen",
    "tp_size": 2,
    "dp_size": 4,
    "schedule_policy": "fcfs",
    "chunked_prefill_size": 8192,
    "disable_radix_cache": True,
    "mem_fraction_static": 0.88,
    "max_total_num_tokens": 512_000,
    "api_key": KEY,
    "quantization": None,
    "internal_states": [{"last_gen_throughput": 1.0}],
    "version": "0.5.3",
}
SGLANG_SETTINGS = {
    "tp_size": 2,
    "dp_size": 4,
    "max_total_num_tokens": 512_000,
    "chunked_prefill_size": 8192,
    "schedule_policy": "fcfs",
    "mem_fraction_static": 0.88,
    "disable_radix_cache": True,
}
TGI = {
    "model_id": "Qwen/Qwen3-8B",
    "model_dtype": "torch.bfloat16",
    "max_concurrent_requests": 128,
    "max_total_tokens": 4096,
    "max_batch_total_tokens": 145_728,
    "waiting_served_ratio": 0.3,
    "version": "3.3.6",
    "sha": "efb94e0d3d63c6ab7ff4ef8efdf1c2a5b2b7f6a7",
    "docker_label": None,
}


@pytest.mark.parametrize(
    ("path", "told", "version", "settings"),
    [
        ("/version", {"version": "1.1.0rc5"}, "1.1.0rc5", {}),
        ("/server_info", SGLANG, "0.5.3", SGLANG_SETTINGS),
        ("/get_server_info", SGLANG, "0.5.3", SGLANG_SETTINGS),
        (
            "/info",
            TGI,
            "3.3.6",
            {name: TGI[name] for name in TGI if name not in ("model_id", "version", "docker_label")},
        ),
    ],
)
def test_each_server_is_asked_where_it_tells(path: str, told: Any, version: str, settings: dict[str, Any]) -> None:
    with raw_server(at(path, told)) as server:
        assert info_of(Endpoint(server.url + "/v1")) == ServerInfo(version, path, settings)
        assert version_of(Endpoint(server.url)) == version


def test_a_server_that_tells_nothing_is_asked_everywhere_once() -> None:
    with raw_server(at("/nowhere", {})) as server:
        assert info_of(Endpoint(server.url)) is None
        assert server.asked == ["GET /version", "GET /server_info", "GET /get_server_info", "GET /info"]


@pytest.mark.parametrize("body", [b'{"version":' + b"[" * 200_000, b'{"version": 7}', b"[]", b"\xff"])
def test_a_version_that_is_none_is_unknown(body: bytes) -> None:
    with raw_server(lambda _, __: [plain(body)]) as server:
        assert version_of(Endpoint(server.url)) is None


@pytest.mark.parametrize("text", ["v" * 10_000, f"1.2 {KEY}", "1.2\x1b[31m"])
def test_what_is_told_is_a_short_line_without_the_key(text: str) -> None:
    with raw_server(at("/server_info", SGLANG | {"version": text, "schedule_policy": text})) as server:
        info = info_of(Endpoint(server.url, key=KEY))
    assert info is not None
    for told in (info.version, str(info.settings["schedule_policy"])):
        assert 0 < len(told) <= 60
        assert told.isprintable()
    assert KEY not in str(info)
