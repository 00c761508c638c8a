"""Request bodies, encoded before the clock starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

Prompt = str | Sequence[int]


def completion_body(
    model: str,
    prompt: Prompt,
    max_tokens: int,
    *,
    seed: int | None = None,
    ignore_eos: bool = True,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """The JSON of a streaming `/v1/completions` request; `prompt` is text or token ids (a list or a numpy array)."""
    return _body({"model": model, "prompt": prompt}, max_tokens, seed, ignore_eos, extra)


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    max_tokens: int,
    *,
    seed: int | None = None,
    ignore_eos: bool = True,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """The JSON of a streaming `/v1/chat/completions` request; a message has `role` and `content`."""
    return _body({"model": model, "messages": list(messages)}, max_tokens, seed, ignore_eos, extra)


def hint_fields(out_hint: int | tuple[int, int] | None) -> dict[str, Any]:
    """What tells vLLM's scheduler how many output tokens to expect, a number or the ends of an interval."""
    return {} if out_hint is None else {"vllm_xargs": {"out_hint": out_hint}}


def _body(
    fields: dict[str, Any], max_tokens: int, seed: int | None, ignore_eos: bool, extra: Mapping[str, Any] | None
) -> bytes:
    fields |= {
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ignore_eos:
        fields["ignore_eos"] = True
    if seed is not None:
        fields["seed"] = seed
    return orjson.dumps(fields | dict(extra or {}), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
