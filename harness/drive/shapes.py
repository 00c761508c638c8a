"""What the answers of one server have in common, so that of most neither the first nor the last token is decoded.

Answers differ in their id, in the time when they were created, and in what a frame leaves open (`event_frame`). The
bytes around these become a shape, checked by decoding it around other ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from harness.drive.event_frame import Frame, decoded, learn

_ID = re.compile(rb'"id":\s*"([\w.:-]{1,200})"')
_CREATED = re.compile(rb'"created":\s*(\d{1,18})')
_PROBE_ID, _PROBE_TIME = "chatcmpl-0.A:b_c", 1_234_567_890
# A server whose answers have nothing in common is not looked at for ever.
_TRIES = 64
_ENDINGS = 4


@dataclass(slots=True, eq=False)
class Shape:
    """Answers whose events with a token differ in id, time and text alone.

    `opening` matches such an event up to its text, its group `id` is the answer's; `frame` is that of one of them;
    `choices` and `counted` are what `openai_stream.Answer` says of it. `endings` are frames of last tokens, each with
    the reason in it, that were seen.
    """

    opening: re.Pattern[bytes]
    frame: Frame
    choices: int
    counted: str
    endings: list[tuple[Frame, str]] = field(default_factory=list)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it another one."""
        return self.opening.pattern, self.frame.after, self.frame.tail, self.choices, self.counted


class Known:
    """The shape of a server's answers, learned from them."""

    def __init__(self) -> None:
        self._shape: Shape | None = None
        self._tries = _TRIES

    def fit(self, event: bytes) -> tuple[Shape, Frame, str] | None:
        """Of an event with the next token of a new answer: its shape, the frame that follows from it and its id."""
        shape = self._shape
        found = None if shape is None else shape.opening.match(event)
        if shape is None or found is None or not shape.frame.holds(event, found.end()):
            return None
        return shape, Frame(found[0], shape.frame.after, shape.frame.tail), found["id"].decode()

    def learn(self, event: bytes, frame: Frame, choices: int, counted: str) -> Shape | None:
        """The shape of an answer, of which an event and its frame are given; None where none can be had."""
        self._tries -= 1
        spans = _changing(frame.before)
        if self._tries < 0 or spans is None:
            return None
        pattern, probe, at = b"", b"", 0
        for (start, end), group, other in spans:
            pattern += re.escape(event[at:start]) + group
            probe += event[at:start] + other
            at = end
        pattern += re.escape(frame.before[at:])
        content = decoded(event)
        if content is None:  # its text is no UTF-8
            return None
        content |= {"id": _PROBE_ID} | ({"created": _PROBE_TIME} if len(spans) > 1 else {})
        if decoded(probe + event[at:]) != content:
            return None
        shape = Shape(re.compile(pattern), frame, choices, counted)
        if self._shape is None or self._shape.key != shape.key:
            self._shape = shape
        return self._shape


def learn_ending(
    shape: Shape, before: bytes, event: bytes, content: dict[str, Any], choice: dict[str, Any], told: bool
) -> None:
    """Takes the last token of an answer of a shape, whose frame begins with `before`; `content` is changed."""
    if len(shape.endings) == _ENDINGS:
        return
    reason = choice["finish_reason"]
    frame = learn(event, content, choice, told)
    if frame is not None and frame.before == before and isinstance(reason, str):
        shape.endings.append((frame, reason))


_Span = tuple[tuple[int, int], bytes, bytes]


def _changing(before: bytes) -> list[_Span] | None:
    """Where an answer's id and its time stand, what may stand there, and another; None where that is not plain."""
    ids, times = list(_ID.finditer(before)), list(_CREATED.finditer(before))
    if len(ids) != 1 or len(times) > 1:
        return None
    spans = [(ids[0].span(1), rb"(?P<id>[\w.:-]{1,200})", _PROBE_ID.encode())]
    spans += [(one.span(1), rb"\d{1,18}", b"%d" % _PROBE_TIME) for one in times]
    return sorted(spans)
