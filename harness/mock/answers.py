"""What the mock server understands and says: OpenAI-style requests in, events and answers out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

DEFAULT_MAX_TOKENS = 16
DONE = b"data: [DONE]\n\n"


class Refused(Exception):
    """A request that cannot be served: HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that was understood; lengths in tokens, `finish` is `length` or `stop`."""

    chat: bool
    stream: bool
    usage: bool
    prompt_tokens: int
    output_tokens: int
    finish: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads request bodies for a model: `eos_after` 0 never ends by itself.

    `count` gives the tokens of a text, with the tokenizer's special tokens or without.
    """

    model: str
    max_model_len: int
    eos_after: int
    count: Callable[[str, bool], int]

    def read(self, body: bytes, chat: bool) -> Ask:
        """The request of a body; Refused with 400, or 404 for another model, as vLLM does."""
        try:
            asked = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Refused(400, f"the body is not JSON: {error}") from None
        if not isinstance(asked, dict):
            raise Refused(400, "the body is not a JSON object")
        model = asked.get("model")
        if model is not None and model != self.model:
            raise Refused(404, f"The model `{model}` does not exist.")
        if asked.get("n") not in (None, 1):
            raise Refused(400, "n: this server gives one choice")
        prompt_tokens = self._chat_tokens(asked) if chat else self._prompt_tokens(asked)
        wanted = _whole(asked, "max_tokens")
        wanted = wanted if wanted is not None else _whole(asked, "max_completion_tokens")
        most = DEFAULT_MAX_TOKENS if wanted is None else wanted
        if prompt_tokens + most > self.max_model_len:
            raise Refused(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested {most} "
                f"output tokens and your prompt contains {prompt_tokens}.",
            )
        ends = 0 if asked.get("ignore_eos") is True else self.eos_after
        output_tokens = min(most, ends) if ends else most
        options = asked.get("stream_options")
        return Ask(
            chat=chat,
            stream=asked.get("stream") is True,
            usage=isinstance(options, dict) and options.get("include_usage") is True,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            finish="stop" if ends and ends <= most else "length",
        )

    def _prompt_tokens(self, asked: dict[str, Any]) -> int:
        prompt = asked.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str) and prompt:
            return self.count(prompt, asked.get("add_special_tokens") is not False)
        # map and set run in C: a long prompt must not hold up the streams.
        if isinstance(prompt, list) and set(map(type, prompt)) == {int}:
            return len(prompt)
        raise Refused(400, "prompt: give one text or one list of token ids, not empty")

    def _chat_tokens(self, asked: dict[str, Any]) -> int:
        messages = asked.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
            raise Refused(400, "messages: give a list of one or more messages")
        texts = []
        for message in messages:
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts += [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return self.count("\n".join(texts), True)


def _whole(asked: dict[str, Any], name: str) -> int | None:
    value = asked.get(name)
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
    return b"data: " + error_json(500, "the mock server fails here on purpose") + b"\n\n" + DONE


class Answer:
    """The bytes of one answer; the first eight hex digits of its id are the server's sequence number."""

    def __init__(self, ask: Ask, seq: int, model: str, text: str, created: int) -> None:
        self.ask = ask
        self._text = text
        kind = ("chat.completion.chunk" if ask.stream else "chat.completion") if ask.chat else "text_completion"
        number = f"{seq & 0xFFFFFFFF:08x}-0000-4000-8000-{seq >> 32:012x}"
        id_ = f"{'chatcmpl' if ask.chat else 'cmpl'}-{number}"
        self._frame: dict[str, Any] = {"id": id_, "object": kind, "created": created, "model": model}

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
        return b"data: " + orjson.dumps({**self._frame, "choices": choices, "usage": usage}) + b"\n\n"

    def _usage(self) -> dict[str, int]:
        prompt, output = self.ask.prompt_tokens, self.ask.output_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}

    def role(self) -> bytes:
        """The first event of a chat stream: a role and no token."""
        delta = {"role": "assistant", "content": ""}
        return self._event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def tokens(self, number: int, *, final: bool = False) -> bytes:
        """An event of so many tokens; the final one says why the answer ends."""
        text = self._text * number
        said: dict[str, Any] = {"delta": {"content": text}} if self.ask.chat else {"text": text}
        finish = self.ask.finish if final else None
        return self._event([{"index": 0, **said, "logprobs": None, "finish_reason": finish, "stop_reason": None}])

    def tail(self) -> bytes:
        """What follows the last token: usage where it was asked for, and the end mark."""
        return (self._event([], self._usage()) if self.ask.usage else b"") + DONE

    def whole(self) -> bytes:
        """The answer in one piece, for a request without `stream`."""
        text = self._text * self.ask.output_tokens
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self.ask.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": self.ask.finish, "stop_reason": None}
        return orjson.dumps({**self._frame, "choices": [choice], "usage": self._usage()})
