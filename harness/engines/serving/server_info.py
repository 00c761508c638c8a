"""What a server that runs already says of itself: its version, and the settings that decide how it schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.core.outside import Door
from harness.drive.endpoint import Endpoint
from harness.engines.serving.fetch import fetch

# Of what servers tell, what a reader of a result would ask for. Some tell their keys as well: nothing else is kept.
_SGLANG = (
    *("tp_size", "pp_size", "dp_size", "max_total_num_tokens", "max_running_requests", "max_prefill_tokens"),
    *("chunked_prefill_size", "schedule_policy", "mem_fraction_static", "disable_radix_cache", "kv_cache_dtype"),
    *("dtype", "quantization", "attention_backend", "disaggregation_mode", "context_length"),
)
_TGI = (
    *("sha", "docker_label", "model_dtype", "max_concurrent_requests", "max_input_tokens", "max_total_tokens"),
    *("max_batch_total_tokens", "max_waiting_tokens", "waiting_served_ratio"),
)
# Where to ask, in this order, and which settings stand there: vLLM and TensorRT-LLM; SGLang, now and before; TGI.
_WAYS = (("/version", ()), ("/server_info", _SGLANG), ("/get_server_info", _SGLANG), ("/info", _TGI))
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server's `version` as it told it at the path `told_at`, and what of its `settings` it told there."""

    version: str
    told_at: str
    settings: dict[str, str | int | float | bool] = field(default_factory=dict)


def info_of(endpoint: Endpoint) -> ServerInfo | None:
    """What the server says of itself at the first place at which it tells a version; None where it does at none."""
    door = Door.of(endpoint.secrets)
    for path, names in _WAYS:
        told = _told(endpoint, path)
        version = told.get("version")
        if isinstance(version, str) and version:
            settings = {name: value for name in names if (value := _plain(told.get(name), door)) is not None}
            return ServerInfo(door.line(version, _LONGEST), path, settings)
    return None


def version_of(endpoint: Endpoint) -> str | None:
    """The version that the server says it is of; None where it tells none."""
    info = info_of(endpoint)
    return None if info is None else info.version


def _told(endpoint: Endpoint, path: str) -> dict[str, Any]:
    try:
        status, body = fetch(endpoint, f"{endpoint.root}{path}")
        told = orjson.loads(body) if status == 200 else None
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _plain(value: Any, door: Door) -> str | int | float | bool | None:
    """A number, a truth or a short text; None of anything else."""
    if isinstance(value, str):
        return door.line(value, _LONGEST)
    return value if isinstance(value, int | float) else None
