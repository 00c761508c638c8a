"""What a started vLLM says of itself: kept as provenance, and held against what was asked for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.drive.endpoint import Endpoint
from harness.engines.serving.command import SCHEDULER
from harness.engines.serving.fetch import fetch
from harness.engines.serving.server_info import version_of
from harness.runs.step_log import ENGINE_LOG, read_step_log

_SCHEDULER_SETTINGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "scheduler_cls",
    "policy",
    "watermark",
    "prefill_schedule_interval",
    "scheduler_reserve_full_isl",
    "enable_chunked_prefill",
)
_CACHE_SETTINGS = ("block_size", "num_gpu_blocks", "enable_prefix_caching", "gpu_memory_utilization", "cache_dtype")


def server_settings(endpoint: Endpoint, step_log: Path | None) -> dict[str, Any]:
    """What a server says: its `version`, and where it tells them the settings of `scheduler`, `cache` and `model`.

    `steps` is the header of the log that our scheduler writes, empty where there is none that can be read.
    """
    settings: dict[str, Any] = {}
    version = version_of(endpoint)
    if version is not None:
        settings["version"] = version
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        # It collects facts of the machine as well, which takes seconds.
        status, body = fetch(endpoint, f"{endpoint.root}/server_info?config_format=json", 120.0)
        config = orjson.loads(body)["vllm_config"] if status == 200 else {}
        settings |= {name: dict(config[f"{name}_config"]) for name in ("scheduler", "cache", "model")}
    with contextlib.suppress(UserError):
        settings["steps"] = {} if step_log is None else read_step_log(step_log, 0).header
    return settings


def read_back(settings: dict[str, Any]) -> dict[str, Any]:
    """What a server says of itself as provenance: version, async mode, KV tokens, and the settings that matter."""
    scheduler, cache = settings.get("scheduler", {}), settings.get("cache", {})
    version = {"engine_version": settings["version"]} if "version" in settings else {}
    return version | {
        "async_scheduling": scheduler.get("async_scheduling"),
        "kv_cache_tokens": cache.get("kv_cache_size_tokens"),
        "engine_settings": {
            **{name: scheduler.get(name) for name in _SCHEDULER_SETTINGS},
            **{name: cache.get(name) for name in _CACHE_SETTINGS},
            "dtype": settings.get("model", {}).get("dtype"),
        },
    }


def other_than_asked(settings: dict[str, Any], spec: RunSpec, version: str, own_scheduler: bool) -> str | None:
    """How a server differs from what was asked for; what it does not tell is not held against it."""
    scheduler, cache, model, steps = (settings.get(name, {}) for name in ("scheduler", "cache", "model", "steps"))
    asked: list[tuple[str, Any, Any]] = [
        ("version", version.partition("+")[0], settings.get("version", "").partition("+")[0]),
        ("max_num_seqs", spec.slots, scheduler.get("max_num_seqs")),
        ("max_num_batched_tokens", spec.token_budget, scheduler.get("max_num_batched_tokens")),
        ("watermark", spec.watermark, scheduler.get("watermark")),
        ("enable_prefix_caching", spec.prefix_caching is not None, cache.get("enable_prefix_caching")),
        ("block_size", spec.block_size, cache.get("block_size")),
        ("max_model_len", spec.max_model_len, model.get("max_model_len")),
    ]
    if spec.kv_tokens is not None:
        asked.append(("num_gpu_blocks", spec.kv_tokens // spec.block_size, cache.get("num_gpu_blocks")))
    if own_scheduler:
        asked.append(("scheduler_cls", SCHEDULER, scheduler.get("scheduler_cls")))
        # Without our scheduler there is no log, and `none` is then what differs.
        asked.append(("policy", spec.policy, steps.get("policy", "none")))
        asked.append(("async scheduling in the step log", scheduler.get("async_scheduling"), steps.get("async")))
    for name, wanted, got in asked:
        if None not in (wanted, got) and got not in ("", wanted):
            return f"vLLM runs with {name} = {got} where {wanted} was asked for: see its {ENGINE_LOG}"
    return None
