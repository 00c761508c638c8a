"""A streamed answer read as it arrives: which events carry tokens and how many, and what the server says of its end."""

from __future__ import annotations

from array import array
from typing import Any

from harness.core.count import count_of
from harness.drive.event_frame import Frame, ids_of, learn, plain_text, text_of
from harness.drive.server_said import decode, is_error, line_of, message_of, said_by, spelled
from harness.drive.shapes import Known, Shape, learn_ending

# An event that is still growing beyond this is no token; memory stays bounded.
MAX_EVENT_BYTES = 8 << 20
# Of an answer whose length nobody asked for.
_MOST_TOKENS = 1_000_000
_MOST_BYTES = 1 << 30

_MOST_STRAY = 16 << 10

_NOTHING = b"\0"  # starts and ends no event
# A server whose events have nothing in common is decoded event by event after so many frames.
_FRAMES = 16

_NO_FRAME = Frame(_NOTHING, _NOTHING)

# How the tokens of an answer's events are known: by the list of their ids, by the usage that runs along with them,
# or not at all: then an event that shows any of a token counts as one.
EVENTS, USAGE, IDS = "events", "usage", "ids"
COUNTED = (EVENTS, USAGE, IDS)


class Answer:
    """One streamed answer: `feed` bytes of the body as they are read, `end` it, then read its fields.

    `stamps` has the time of the read (ns) that brought each event with tokens, `tokens` how many each brought (None:
    one each) and `counted`, one of COUNTED, how that is known; only with `told` is a server believed that tells it.
    `usage` and `prompt_tokens` are the server's counts, None where it gave none; `beyond` says that more events had
    tokens than `usage` counts: those stand nowhere. `error` is `name: detail`, None while all is well. An answer to a
    request for `expected` tokens ends in error where it goes far beyond that, and is then `broken`: nothing more of
    it is worth reading. Answers of one server share what is `known` of them.
    """

    __slots__ = (
        "_after",
        "_after_end",
        "_before",
        "_frames",
        "_idle",
        "_known",
        "_most_tokens",
        "_newline",
        "_parts",
        "_seen",
        "_shape",
        "_size",
        "_skip_lf",
        "_stray",
        "_tail",
        "_text",
        "_told",
        "beyond",
        "broken",
        "choices",
        "counted",
        "done",
        "error",
        "finish_reason",
        "most_bytes",
        "prompt_tokens",
        "response_id",
        "stamps",
        "tokens",
        "usage",
    )

    def __init__(self, expected: int = 0, told: bool = False, known: Known | None = None) -> None:
        self.stamps = array("q")
        self.tokens: array[int] | None = None
        self.counted = EVENTS
        self.usage: int | None = None
        self.prompt_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.done = self.broken = self.beyond = False
        self.choices = 1
        self.response_id: str | None = None
        # Wide enough for a server that tells tokens in pieces, and too narrow to fill a machine.
        self._most_tokens = 4 * expected + 4096 if expected else _MOST_TOKENS
        self.most_bytes = min((16 << 20) + (self._most_tokens << 14), _MOST_BYTES)
        self._told = told
        self._known = known or Known()
        self._shape: Shape | None = None
        self._seen = 0  # tokens so far
        self._take(_NO_FRAME)
        self._frames = 0
        self._parts: list[bytes] = []  # an event that has begun
        self._size = 0
        self._idle = 0  # bytes since the last token, or about so many
        self._newline = False  # it ends with a line's end so far
        self._skip_lf = False
        self._stray = b""  # what came first that is no event at all

    @property
    def output_tokens(self) -> int:
        """The server's count, or what was seen where it gave none."""
        return self._seen if self.usage is None else self.usage

    def feed(self, data: bytes, t_ns: int) -> None:
        """Take bytes of the body, cut anywhere, that were read at `t_ns`."""
        # Most often a read is one whole event in the frame.
        if data.startswith(self._before) and not self._parts:
            if self._tail is not None:
                if self._told_one(self._tail(data, self._text), t_ns):
                    return
            elif data.endswith(self._after_end) and plain_text(data, self._text, len(data) - len(self._after_end)):
                self.stamps.append(t_ns)
                self._seen += 1
                if self._seen > self._most_tokens:
                    self._too_many()
                return
        self._feed(data, t_ns)

    def end(self, t_ns: int) -> None:
        """The body has ended; an event without its blank line counts."""
        if self._parts:
            self._feed(b"\n\n", t_ns)
        if self.usage is None:
            return
        if self._seen != self.usage and self.counted != EVENTS:
            # What the events told is not what the end tells: neither is known to be right of the events.
            self.counted, self.tokens = EVENTS, None
        if self.counted == EVENTS and len(self.stamps) > self.usage:
            self.beyond = True
            del self.stamps[self.usage :]

    def said(self) -> str:
        """What a body that has no token in it says."""
        return said_by(self._stray)

    def _feed(self, data: bytes, t_ns: int) -> None:
        if self.broken or self.done:
            return
        self._idle += len(data)
        if self._skip_lf and data.startswith(b"\n"):
            data = data[1:]
        self._skip_lf = data.endswith(b"\r")
        if b"\r" in data:
            # A CR ends a line at once, so that no event waits for the next read; an LF after it is skipped.
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._parts:
            # Joined once an event is whole: joined at every line of it, its bytes would be copied again and again.
            if not (b"\n\n" in data or (self._newline and data.startswith(b"\n"))):
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
        if self._idle > MAX_EVENT_BYTES and not self.broken:
            self._break(f"too_large: {MAX_EVENT_BYTES >> 20} MiB in a row without a token")

    def _keep(self, data: bytes) -> None:
        if data:
            self._parts.append(data)
            self._size += len(data)
            self._newline = data.endswith(b"\n")
        if self._size > MAX_EVENT_BYTES:
            self._too_large()

    def _break(self, error: str) -> None:
        self._parts = []
        self._take(_NO_FRAME)
        self.broken = True
        self.error = error

    def _too_large(self) -> None:
        self._break(f"event_too_large: an event of more than {MAX_EVENT_BYTES >> 20} MiB")

    def _too_many(self) -> None:
        self._break(f"too_many_tokens: more than {self._most_tokens:,} tokens in one answer")

    def _event(self, event: bytes, t_ns: int) -> None:
        if self.broken or self.done or (event.startswith(b":") and b"\n" not in event):
            return  # the last is a comment
        if event.startswith(self._before):
            if self._in_frame(event, t_ns):
                return
        elif self._before is _NOTHING and self._fits(event, t_ns):
            return
        if len(event) > MAX_EVENT_BYTES:
            self._too_large()
            return
        data = _data_of(event)
        if data == b"[DONE]":
            self.done = True
            self._take(_NO_FRAME)
        elif data:
            content = decode(data)
            if isinstance(content, dict):
                self._content(content, event, t_ns)
            else:
                self.error = self.error or f"bad_event: {line_of(data)}"
        elif not self._stray and not event.lstrip().startswith((b":", b"event:", b"id:", b"retry:", b"data:")):
            self._stray = event[:_MOST_STRAY]

    def _in_frame(self, event: bytes, t_ns: int) -> bool:
        """Whether an event that begins as the frame does holds just the next token, maybe the last one."""
        if self._tail is not None:
            if self._told_one(self._tail(event + b"\n\n", self._text), t_ns):
                return True
        elif event.endswith(self._after) and plain_text(event, self._text, len(event) - len(self._after)):
            self._stamp(1, t_ns)
            return True
        for frame, reason in self._shape.endings if self._shape else ():
            if frame.holds(event, self._text):
                self.finish_reason = reason
                self._stamp(1, t_ns)
                return True
        return False

    def _fits(self, event: bytes, t_ns: int) -> bool:
        """Whether an event without a frame holds just the next token of an answer like those before it."""
        fit = self._known.fit(event)
        if fit is None or self.counted not in (EVENTS, fit[0].counted):
            return False
        self._shape, frame, answer_id = fit
        self._take(frame)
        self.response_id = answer_id if self.response_id is None else self.response_id
        self.choices = max(self.choices, self._shape.choices)
        self.counted = self._shape.counted
        self._stamp(1, t_ns)
        return True

    def _told_one(self, found: Any, t_ns: int) -> bool:
        """Whether an event in the frame holds just the next token; it is then counted."""
        if not found or (found.lastindex and int(found[1]) != self._seen + 1):
            return False
        self._stamp(1, t_ns)
        if found.lastindex:
            self.usage = self._seen
        return True

    def _stamp(self, tokens: int, t_ns: int) -> None:
        self._idle = 0
        self._seen += tokens
        if self._seen > self._most_tokens:
            self._too_many()
            return
        if tokens != 1 and self.tokens is None:
            self.tokens = array("q", [1]) * len(self.stamps)
        if self.tokens is not None:
            self.tokens.append(tokens)
        self.stamps.append(t_ns)

    def _content(self, content: dict[str, Any], event: bytes, t_ns: int) -> None:
        if is_error(content, event):
            self.error = self.error or f"error_event: {message_of(content)}"
            return
        running = self._usage(content.get("usage"))
        listed = content.get("choices")
        if not listed:
            return
        choices = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        for choice in choices:
            reason = choice.get("finish_reason")
            self.finish_reason = reason if isinstance(reason, str) and reason else self.finish_reason
            index = count_of(choice.get("index"))
            if index is not None:
                self.choices = max(self.choices, index + 1)
        carries = any(map(_carries_token, choices))
        tokens = self._tokens_of(choices, running, carries)
        if tokens > 0:
            self._stamp(tokens, t_ns)
            if self.response_id is None and isinstance(content.get("id"), str):
                self.response_id = content["id"]
            told = self.counted != EVENTS
            if tokens == 1 and len(choices) == 1 and (told or not running):
                self._learn(content, choices[0], event, told)

    def _usage(self, usage: Any) -> int | None:
        """Takes the server's counts; the output so far where it tells one."""
        if not isinstance(usage, dict):
            return None
        for name in ("completion_tokens", "prompt_tokens"):
            if usage.get(name) is not None and count_of(usage[name]) is None:
                self.error = self.error or f"bad_usage: {name} is {spelled(usage[name])}, which is no count"
                return None
        prompt = count_of(usage.get("prompt_tokens"))
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        output = count_of(usage.get("completion_tokens"))
        self.usage = self.usage if output is None else output
        return output

    def _tokens_of(self, choices: list[dict[str, Any]], running: int | None, carries: bool) -> int:
        """How many tokens an event holds: as the server tells them, or one where any of one is seen."""
        if not self._told or not choices:
            return int(carries)
        listed = [number for number in map(ids_of, choices) if number is not None]
        if listed:
            self.counted = IDS
            return sum(listed)
        if running is None or self.counted == IDS or not (running or self._seen):
            return int(carries)  # 0 so far: the role alone, or a server that counts at the end only
        if running < self._seen:
            self.error = self.error or f"bad_usage: it falls from {self._seen} to {running} tokens"
        self.counted = USAGE
        return running - self._seen

    def _learn(self, content: dict[str, Any], choice: dict[str, Any], event: bytes, told: bool) -> None:
        shared = not content.get("usage")
        if choice.get("finish_reason"):
            if shared and self._shape is not None:
                learn_ending(self._shape, self._before, event, content, choice, told)
            return
        framed = not told and event.startswith(self._before) and event.endswith(self._after)
        if framed or self._frames >= _FRAMES:
            return
        self._frames += 1
        frame = learn(event, content, choice, told)
        if frame is not None:
            self._take(frame)
            index = count_of(choice.get("index")) or 0
            self._shape = self._known.learn(event, frame, index + 1, self.counted) if shared else None

    def _take(self, frame: Frame) -> None:
        # The text starts where `before` ends.
        self._before, self._after, self._after_end = frame.before, frame.after, frame.after + b"\n\n"
        self._text, self._tail = len(frame.before), frame.tail


def _data_of(event: bytes) -> bytes:
    """The data of an event, its lines joined; empty for comments and keep-alive lines."""
    if b"\n" not in event and event.startswith(b"data:"):
        return event[5:].strip()
    lines = event.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")).strip()


def _carries_token(choice: dict[str, Any]) -> bool:
    """Whether a choice brings any of a token: text, reasoning, a part of a tool call, a refusal, token ids."""
    if text_of(choice) or ids_of(choice):
        return True
    delta = choice.get("delta")
    return isinstance(delta, dict) and any(delta.get(name) for name in ("tool_calls", "function_call", "refusal"))
