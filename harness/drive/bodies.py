"""Request bodies, encoded before the clock starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.drive.openai_stream import IDS, USAGE

Prompt = str | Sequence[int]
# Without these a body is no request for a stream.
NEEDED = ("model", "prompt", "messages", "stream")


@dataclass(frozen=True, slots=True)
class BodyForm:
    """What a user has a server's bodies be: the name of the field for the output length, fields that are set besides
    or in the place of ours, and fields that are left out.
    """

    length_field: str = "max_tokens"
    fields: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


_USUAL = BodyForm()


def completion_body(
    model: str,
    prompt: Prompt,
    max_tokens: int,
    *,
    seed: int | None = None,
    ignore_eos: bool = True,
    extra: Mapping[str, Any] | None = None,
    form: BodyForm = _USUAL,
) -> bytes:
    """The JSON of a streaming `/v1/completions` request; `prompt` is text or token ids (a list or a numpy array)."""
    return _body({"model": model, "prompt": prompt}, max_tokens, seed, ignore_eos, extra, form)


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    max_tokens: int,
    *,
    seed: int | None = None,
    ignore_eos: bool = True,
    extra: Mapping[str, Any] | None = None,
    form: BodyForm = _USUAL,
) -> bytes:
    """The JSON of a streaming `/v1/chat/completions` request; a message has `role` and `content`."""
    return _body({"model": model, "messages": list(messages)}, max_tokens, seed, ignore_eos, extra, form)


def hint_fields(out_hint: int | tuple[int, int] | None) -> dict[str, Any]:
    """What tells vLLM's scheduler how many output tokens to expect, a number or the ends of an interval."""
    return {} if out_hint is None else {"vllm_xargs": {"out_hint": out_hint}}


def counting_fields(counted: str) -> dict[str, Any]:
    """What asks a server to tell how many tokens an event holds, in the way that `openai_stream` calls so."""
    if counted == USAGE:
        return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return {"return_token_ids": True} if counted == IDS else {}


def _body(
    fields: dict[str, Any],
    max_tokens: int,
    seed: int | None,
    ignore_eos: bool,
    extra: Mapping[str, Any] | None,
    form: BodyForm,
) -> bytes:
    fields |= {
        form.length_field: max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ignore_eos:
        fields["ignore_eos"] = True
    if seed is not None:
        fields["seed"] = seed
    fields |= dict(extra or {}) | dict(form.fields)
    for name in form.left_out:
        fields.pop(name, None)
    return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
