"""What the events of one answer have in common, so that most are counted without decoding them.

Events of an answer differ in the text of their token, and where the server tells how many tokens an event holds, in
that number. The bytes around these become a frame, checked by decoding it around other ones. An event in that frame
around a plain JSON string then carries what the first one did, by JSON's grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

# A JSON string without \u escapes; what does not match is decoded.
_PLAIN = rb'[^"\\\x00-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x1f]*)*'
plain_text: Callable[..., re.Match[bytes] | None] = re.compile(rb'(?=[^"])' + _PLAIN).fullmatch
_STRING = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL).match
_IDS = re.compile(rb'"token_ids":\s*\[\s*(\d+)\s*\]')
_COUNT = re.compile(rb'"completion_tokens":\s*(\d+)')
_TOTAL = re.compile(rb'"total_tokens":\s*(\d+)')
_PROBE = "a probe"
_PROBE_NUMBER = 7_654_321
# A frame is worth its making for small events only.
_LONGEST = 4096

TEXTS = ("text", "content", "reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class Frame:
    """The bytes before and after an event's text.

    `tail` matches all that follows `before`, the blank line included, of an event that tells its tokens: it holds one
    token where the match has no group, and else the count that the group is.
    """

    before: bytes
    after: bytes
    tail: Callable[..., re.Match[bytes] | None] | None = None

    def holds(self, event: bytes, text: int) -> bool:
        """Whether an event, whose text starts at `text`, goes on and ends as those of this frame do."""
        if self.tail is not None:
            return self.tail(event + b"\n\n", text) is not None
        return event.endswith(self.after) and plain_text(event, text, len(event) - len(self.after)) is not None


def text_of(choice: dict[str, Any], empty: bool = False) -> tuple[dict[str, Any], str] | None:
    """The object and the name in it under which a choice holds its text; with `empty` an empty one too."""
    for holder in (choice, choice.get("delta")):
        if isinstance(holder, dict):
            for name in TEXTS:
                if isinstance(holder.get(name), str) and (empty or holder[name]):
                    return holder, name
    return None


def ids_of(choice: dict[str, Any]) -> int | None:
    """How many token ids a choice brings, None where it has no list of them."""
    for holder in (choice, choice.get("delta")):
        if isinstance(holder, dict) and isinstance(holder.get("token_ids"), list):
            return len(holder["token_ids"])
    return None


def learn(event: bytes, content: dict[str, Any], choice: dict[str, Any], told: bool) -> Frame | None:
    """The frame of an event, whose content with one choice this is; None where none can be had.

    With `told` the event's ids or running usage say how many tokens it holds. `content` is changed.
    """
    found = text_of(choice, empty=told)
    if found is None or b"\n" in event or len(event) > _LONGEST or not event.startswith(b"data:"):
        return None
    holder, name = found
    key = re.search(rb'"%b":\s*"' % name.encode(), event)
    text = _STRING(event, key.end()) if key else None
    if text is None:
        return None
    before, after = event[: text.start()], event[text.end() :]
    numbers = _numbers(after, choice) if told else []
    if numbers is None:
        return None
    holder[name] = _PROBE
    probe = _spliced(after, numbers, b"%d" % _PROBE_NUMBER)
    _put(content, choice, [pattern for pattern, _, _ in numbers])
    if decoded(before + _PROBE.encode() + probe) != content:
        return None
    return Frame(before, after, _tail(_template(after, numbers)) if told else None)


_Number = tuple[re.Pattern[bytes], int, int]


def _numbers(after: bytes, choice: dict[str, Any]) -> list[_Number] | None:
    """The places in `after` of what changes from event to event; None where they cannot be told apart."""
    wanted = [_IDS] if ids_of(choice) is not None else []
    # A server may send both; where ids are read the running usage changes all the same.
    wanted += [pattern for pattern in (_COUNT, _TOTAL) if pattern.search(after)]
    numbers = []
    for pattern in wanted:
        found = pattern.findall(after)
        one = pattern.search(after)
        if len(found) != 1 or one is None:
            return None
        numbers.append((pattern, *one.span(1)))
    if _IDS not in wanted and _COUNT not in wanted:
        return None
    return sorted(numbers, key=lambda number: number[1])


def _put(content: dict[str, Any], choice: dict[str, Any], patterns: list[re.Pattern[bytes]]) -> None:
    """Gives a content the probe's numbers where such were found."""
    usage = content.get("usage")
    for pattern, name in ((_COUNT, "completion_tokens"), (_TOTAL, "total_tokens")):
        if pattern in patterns and isinstance(usage, dict) and name in usage:
            usage[name] = _PROBE_NUMBER
    if _IDS in patterns:
        holder = choice if isinstance(choice.get("token_ids"), list) else choice["delta"]
        holder["token_ids"] = [_PROBE_NUMBER]


def _spliced(after: bytes, numbers: list[_Number], other: bytes) -> bytes:
    out, at = b"", 0
    for _, start, end in numbers:
        out += after[at:start] + other
        at = end
    return out + after[at:]


def _template(after: bytes, numbers: list[_Number]) -> tuple[tuple[bytes, ...], int]:
    """The pieces between the numbers, and which of these is the count (-1: ids are what counts)."""
    pieces, at = [], 0
    for _, start, end in numbers:
        pieces.append(after[at:start])
        at = end
    patterns = [pattern for pattern, _, _ in numbers]
    return (*pieces, after[at:]), (-1 if _IDS in patterns else patterns.index(_COUNT))


@lru_cache(maxsize=256)
def _tail(template: tuple[tuple[bytes, ...], int]) -> Callable[..., re.Match[bytes] | None]:
    # Equal for all answers of a server: only what stands before a text has an answer's id in it.
    pieces, count = template
    pattern = _PLAIN + re.escape(pieces[0])
    for i, piece in enumerate(pieces[1:]):
        pattern += (rb"(\d{1,12})" if i == count else rb"\d+") + re.escape(piece)
    return re.compile(pattern + rb"\n\n").fullmatch


def decoded(event: bytes) -> Any:
    """The content of an event of one line of data, None where that is no JSON."""
    try:
        return orjson.loads(event[5:])
    except orjson.JSONDecodeError:
        return None
