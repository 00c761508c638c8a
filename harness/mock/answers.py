"""What the mock server understands and says: OpenAI-style requests in, events and answers out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

DEFAULT_MAX_TOKENS = 16
DONE = b"data: [DONE]\n\n"
ON_PURPOSE = "the mock server fails here on purpose"


class Refused(Exception):
    """A request that cannot be served: HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request that was understood; lengths in tokens, `finish` is `length` or `stop`."""

    chat: bool
    stream: bool
    usage: bool
    prompt_tokens: int
    output_tokens: int
    finish: str


@dataclass(frozen=True, slots=True)
class RequestReader:
    """Reads request bodies for a model: `eos_after` 0 never ends by itself.

    `count` gives the tokens of a text, with the tokenizer's special tokens or without.
    """

    model: str
    max_model_len: int
    eos_after: int
    count: Callable[[str, bool], int]

    def read(self, body: bytes, chat: bool) -> CompletionRequest:
        """The request of a body; Refused with 400, or 404 for another model, as vLLM does."""
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Refused(400, f"the body is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise Refused(400, "the body is not a JSON object")
        model = fields.get("model")
        if model is not None and model != self.model:
            raise Refused(404, f"The model `{model}` does not exist.")
        if fields.get("n") not in (None, 1):
            raise Refused(400, "n: this server gives one choice")
        prompt_tokens = self._chat_tokens(fields) if chat else self._prompt_tokens(fields)
        max_tokens = _count_of(fields, "max_tokens")
        if max_tokens is None:
            max_tokens = _count_of(fields, "max_completion_tokens")
        if max_tokens is None:
            max_tokens = DEFAULT_MAX_TOKENS
        if prompt_tokens + max_tokens > self.max_model_len:
            raise Refused(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested "
                f"{max_tokens} output tokens and your prompt contains {prompt_tokens}.",
            )
        ends = 0 if fields.get("ignore_eos") is True else self.eos_after
        output_tokens = min(max_tokens, ends) if ends else max_tokens
        options = fields.get("stream_options")
        return CompletionRequest(
            chat=chat,
            stream=fields.get("stream") is True,
            usage=isinstance(options, dict) and options.get("include_usage") is True,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            finish="stop" if ends and ends <= max_tokens else "length",
        )

    def _prompt_tokens(self, fields: dict[str, Any]) -> int:
        prompt = fields.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str) and prompt:
            return self.count(prompt, fields.get("add_special_tokens") is not False)
        # map and set run in C: a long prompt must not hold up the streams.
        if isinstance(prompt, list) and set(map(type, prompt)) == {int}:
            return len(prompt)
        raise Refused(400, "prompt: give one text or one list of token ids, not empty")

    def _chat_tokens(self, fields: dict[str, Any]) -> int:
        messages = fields.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
            raise Refused(400, "messages: give a list of one or more messages")
        texts = []
        for message in messages:
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts += [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return self.count("\n".join(texts), True)


def _count_of(fields: dict[str, Any], name: str) -> int | None:
    """A field that is a whole number of at least 1, None where it is absent."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise Refused(400, f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def error_json(status: int, message: str) -> bytes:
    """An error as vLLM words it."""
    kinds = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}
    kind = kinds.get(status, "InternalServerError")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}})


def error_event() -> bytes:
    """An error inside a stream that began with 200, as vLLM sends it when its engine dies."""
    return b"data: " + error_json(500, ON_PURPOSE) + b"\n\n" + DONE


class AnswerWriter:
    """The bytes of one answer; the first eight hex digits of its id are the server's sequence number."""

    def __init__(self, asked: CompletionRequest, seq: int, model: str, text: str, created: int) -> None:
        self.asked = asked
        self._text = text
        kind = ("chat.completion.chunk" if asked.stream else "chat.completion") if asked.chat else "text_completion"
        number = f"{seq & 0xFFFFFFFF:08x}-0000-4000-8000-{seq >> 32:012x}"
        id_ = f"{'chatcmpl' if asked.chat else 'cmpl'}-{number}"
        self._frame: dict[str, Any] = {"id": id_, "object": kind, "created": created, "model": model}

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
        return b"data: " + orjson.dumps({**self._frame, "choices": choices, "usage": usage}) + b"\n\n"

    def _usage(self) -> dict[str, int]:
        prompt, output = self.asked.prompt_tokens, self.asked.output_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}

    def role(self) -> bytes:
        """The first event of a chat stream: a role and no token."""
        delta = {"role": "assistant", "content": ""}
        return self._event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def tokens(self, number: int, *, final: bool = False) -> bytes:
        """An event of so many tokens; the final one says why the answer ends."""
        text = self._text * number
        content: dict[str, Any] = {"delta": {"content": text}} if self.asked.chat else {"text": text}
        finish = self.asked.finish if final else None
        return self._event([{"index": 0, **content, "logprobs": None, "finish_reason": finish, "stop_reason": None}])

    def tail(self) -> bytes:
        """What follows the last token: usage where it was asked for, and the end mark."""
        return (self._event([], self._usage()) if self.asked.usage else b"") + DONE

    def whole(self) -> bytes:
        """The answer in one piece, for a request without `stream`."""
        text = self._text * self.asked.output_tokens
        message = {"message": {"role": "assistant", "content": text}}
        content: dict[str, Any] = message if self.asked.chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": self.asked.finish, "stop_reason": None}
        return orjson.dumps({**self._frame, "choices": [choice], "usage": self._usage()})
