"""What a server says in words: its errors, in the forms that servers have for them, on one line."""

from __future__ import annotations

from typing import Any

import orjson

# Enough for a whole sentence. What is kept of it is cut once more, after what is secret has been masked in it.
_MOST = 4096


def decode(data: bytes) -> Any:
    """The JSON value; bytes that are no UTF-8 are replaced, since they are text of a token at worst. None if none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return orjson.loads(data.decode(errors="replace"))
        except orjson.JSONDecodeError:
            return None


def is_error(content: dict[str, Any], event: bytes) -> bool:
    """Whether an event, whose data this is, says that the answer failed."""
    if content.get("error") or "error" in (content.get("object"), content.get("type")):
        return True
    if "choices" in content:
        return False
    named = event.startswith(b"event: error") or b"\nevent: error" in event
    return named or any(isinstance(content.get(name), str) and content[name] for name in ("message", "detail"))


def message_of(content: dict[str, Any]) -> str:
    """What an error object says."""
    error = content.get("error") or content
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return line_of(error if isinstance(error, str) else spelled(error))


def said_by(body: bytes) -> str:
    """What a body says that is no stream: its error's message where it is JSON."""
    content = decode(body)
    return message_of(content) if isinstance(content, dict) else line_of(body)


def spelled(value: Any) -> str:
    """A JSON value as JSON."""
    try:
        return orjson.dumps(value).decode()[:_MOST]
    except TypeError:  # nested deeper than it writes
        return "an object too deep to show"


def line_of(text: str | bytes) -> str:
    """A text on one line, its end cut off where it is very long."""
    if isinstance(text, bytes):
        text = text[:_MOST].decode(errors="replace")
    return " ".join(text.split())[:_MOST]
