"""A streamed answer read as it arrives: which events carry a token, and what the server says of its end.

Events of one answer differ in the text of their token only. The first is decoded; its bytes before and after
the text become a frame, checked by decoding it around another text. An event in that frame around a
plain, non-empty JSON string then carries a token, by JSON's grammar, and is not decoded.
"""

from __future__ import annotations

import re
from array import array
from typing import Any

import orjson

# An event that is still growing beyond this is no token; memory stays bounded.
MAX_EVENT_BYTES = 8 << 20

# A non-empty JSON string without \u escapes; what does not match is decoded.
_PLAIN = re.compile(rb'(?=[^"])[^"\\\x00-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x1f]*)*').fullmatch
_STRING = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL).match
_NOTHING = b"\0"  # starts and ends no event
_TEXTS = ("text", "content", "reasoning_content", "reasoning")
_PROBE = "a probe"
# A server whose events have nothing in common is decoded event by event after so many frames.
_FRAMES = 16


class Answer:
    """One streamed answer: `feed` bytes of the body as they are read, `end` it, then read its fields.

    `stamps` has the time of the read (ns) that brought each event with a token; `usage` and `prompt_tokens`
    are the server's counts, None where it gave none; `error` is `name: detail`, None while all is well. With
    `empty_tokens` a text that is empty is a token too: one that cannot be shown before the next has come.
    """

    __slots__ = (
        "_after",
        "_after_end",
        "_before",
        "_empty_tokens",
        "_frames",
        "_parts",
        "_size",
        "_skip_lf",
        "_text",
        "choices",
        "done",
        "error",
        "finish_reason",
        "prompt_tokens",
        "response_id",
        "stamps",
        "usage",
    )

    def __init__(self, empty_tokens: bool = False) -> None:
        self._empty_tokens = empty_tokens
        self.stamps = array("q")
        self.usage: int | None = None
        self.prompt_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.done = False
        self.choices = 1
        self.response_id: str | None = None
        self._before = self._after = self._after_end = _NOTHING
        self._text = 0  # where the text starts: len(self._before)
        self._frames = 0
        self._parts: list[bytes] = []  # an event that has begun
        self._size = 0
        self._skip_lf = False

    @property
    def broken(self) -> bool:
        """Whether nothing more of this answer is worth reading."""
        return self.error is not None and self.error.startswith("event_too_large")

    def feed(self, data: bytes, t_ns: int) -> None:
        """Take bytes of the body, cut anywhere, that were read at `t_ns`."""
        # Most often a read is one whole event in the frame.
        if (
            data.endswith(self._after_end)
            and data.startswith(self._before)
            and not self._parts
            and _PLAIN(data, self._text, len(data) - len(self._after_end))
        ):
            self.stamps.append(t_ns)
            return
        self._feed(data, t_ns)

    def end(self, t_ns: int) -> None:
        """The body has ended; an event without its blank line counts."""
        if self._parts:
            self._feed(b"\n\n", t_ns)

    def _feed(self, data: bytes, t_ns: int) -> None:
        if self.broken:
            return
        if self._skip_lf and data.startswith(b"\n"):
            data = data[1:]
        self._skip_lf = data.endswith(b"\r")
        if b"\r" in data:
            # A CR ends a line at once, so that no event waits for the next read; an LF after it is skipped.
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._parts:
            if b"\n" not in data:
                self._keep(data)
                return
            data = b"".join((*self._parts, data))
            self._parts = []
            self._size = 0
        *events, rest = data.split(b"\n\n")
        for event in events:
            self._event(event, t_ns)
        if rest:
            self._keep(rest)

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > MAX_EVENT_BYTES:
            self._too_large()

    def _too_large(self) -> None:
        self._parts = []
        self.error = f"event_too_large: an event of more than {MAX_EVENT_BYTES >> 20} MB"

    def _event(self, event: bytes, t_ns: int) -> None:
        if (
            event.endswith(self._after)
            and event.startswith(self._before)
            and _PLAIN(event, self._text, len(event) - len(self._after))
        ):
            self.stamps.append(t_ns)
            return
        if len(event) > MAX_EVENT_BYTES:
            self._too_large()
        if self.broken:
            return
        data = _data_of(event)
        if data == b"[DONE]":
            self.done = True
        elif data:
            content = _decode(data)
            if isinstance(content, dict):
                self._content(content, event, t_ns)
            else:
                self.error = self.error or f"bad_event: {squeezed(data[:80].decode(errors='replace'))}"

    def _content(self, content: dict[str, Any], event: bytes, t_ns: int) -> None:
        if content.get("error") or content.get("object") == "error":
            self.error = self.error or f"error_event: {message_of(content)}"
            return
        usage = content.get("usage")
        if isinstance(usage, dict):
            self.usage = _count(usage.get("completion_tokens"), self.usage)
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)
        listed = content.get("choices")
        choices = [choice for choice in listed if isinstance(choice, dict)] if isinstance(listed, list) else []
        carries = False
        for choice in choices:
            carries = carries or _carries_token(choice) or (self._empty_tokens and choice.get("text") == "")
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            index = choice.get("index")
            if isinstance(index, int):
                self.choices = max(self.choices, index + 1)
        if carries:
            self.stamps.append(t_ns)
            if self.response_id is None and isinstance(content.get("id"), str):
                self.response_id = content["id"]
            if len(choices) == 1 and not choices[0].get("finish_reason") and not usage:
                self._learn(content, choices[0], event)

    def _learn(self, content: dict[str, Any], choice: dict[str, Any], event: bytes) -> None:
        """Take the event's bytes around its text as the frame, where decoding it around another text agrees."""
        if b"\n" in event or self._frames >= _FRAMES or _is_framed(event, self._before, self._after):
            return
        self._frames += 1
        place = _text_of(choice)
        if place is None:
            return
        holder, name = place
        key = re.search(rb'"%b":\s*"' % name.encode(), event)
        text = _STRING(event, key.end()) if key else None
        if text is None:
            return
        before, after = event[: text.start()], event[text.end() :]
        probe = _decode(_data_of(before + _PROBE.encode() + after))
        holder[name] = _PROBE
        if probe == content:
            self._before, self._after, self._after_end = before, after, after + b"\n\n"
            self._text = len(before)


def _is_framed(event: bytes, before: bytes, after: bytes) -> bool:
    return event.startswith(before) and event.endswith(after)


def _data_of(event: bytes) -> bytes:
    """The data of an event, its lines joined; empty for comments and keep-alive lines."""
    if b"\n" not in event and event.startswith(b"data:"):
        return event[5:].strip()
    lines = event.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")).strip()


def _decode(data: bytes) -> Any:
    """The JSON value; bytes that are no UTF-8 are replaced, since they are text of a token at worst. None if none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return orjson.loads(data.decode(errors="replace"))
        except orjson.JSONDecodeError:
            return None


def _text_of(choice: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """The object and the name in it under which a choice holds its text."""
    for holder in (choice, choice.get("delta")):
        if isinstance(holder, dict):
            for name in _TEXTS:
                if isinstance(holder.get(name), str) and holder[name]:
                    return holder, name
    return None


def _carries_token(choice: dict[str, Any]) -> bool:
    """Whether a choice brings any of a token: text, reasoning, a part of a tool call, a refusal, token ids."""
    if _text_of(choice) or choice.get("token_ids"):
        return True
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    return any(delta.get(name) for name in ("tool_calls", "function_call", "refusal", "token_ids"))


def _count(value: Any, known: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else known


def message_of(content: dict[str, Any]) -> str:
    """What a server's error object says, on one line."""
    error = content.get("error") or content
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or orjson.dumps(error, default=str).decode()
    return squeezed(str(error))


def squeezed(text: str) -> str:
    """A text of a server on one line, its white space single blanks, cut off after 300 characters."""
    return " ".join(text.split())[:300]


def conclude(answer: Answer, expected: int | None, ignore_eos: bool) -> tuple[str, str | None]:
    """How a whole answer to a request for `expected` tokens ended: its finish and, of a failure, `name: detail`."""
    tokens = len(answer.stamps) if answer.usage is None else answer.usage
    if answer.error:
        return "error", answer.error
    if answer.finish_reason in ("abort", "error", "content_filter"):
        return "error", f"{answer.finish_reason}: the server's finish_reason"
    if not answer.stamps:
        return "error", "no_tokens: the answer has no token"
    if not answer.done:
        return "error", "no_done: the stream ended without [DONE]"
    if answer.usage is None:
        return "error", "no_usage: the server gave no usage; output_tokens counts events"
    if expected and tokens > expected:
        several = f" in {answer.choices} choices" if answer.choices > 1 else ""
        return "error", f"overlong: {tokens} tokens{several} where {expected} were asked for"
    if expected and tokens < expected and (ignore_eos or answer.finish_reason == "length"):
        return "short", f"short: {tokens} tokens where {expected} were asked for"
    reached = answer.finish_reason == "length" or (answer.finish_reason is None and tokens == expected)
    return ("length" if reached else "stop"), None
