"""However a stream is cut into reads, it has the same events; and the frame never changes what is a token."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from harness.drive.openai_stream import Answer
from tests.support.drive_servers import DONE, delta, event, token, usage

TEXTS = st.text(max_size=6) | st.sampled_from(["", '"', "\\", '\\"', "\n", " the", "é", "🙂", '","text":"', "data: "])
REASONS = st.sampled_from([None, None, None, "length", "stop"])
EVENTS = st.one_of(
    st.builds(token, TEXTS, REASONS),
    st.builds(token, TEXTS),
    st.builds(lambda text: delta({"content": text}), TEXTS),
    st.builds(lambda text: delta({"reasoning_content": text, "content": None}), TEXTS),
    st.builds(lambda a, b: event({"choices": [{"index": 0, "text": a}, {"index": 1, "text": b}]}), TEXTS, TEXTS),
    st.builds(usage, st.integers(0, 99)),
    st.sampled_from(
        [
            DONE,
            b": ping\n\n",
            b"\n",
            b"data: {oops\n\n",
            event({"error": {"message": "x"}}),
            delta({"role": "assistant"}),
            b'event: x\ndata: {"choices":\ndata: [{"text": "y"}]}\n\n',
        ]
    ),
)
ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def said(answer: Answer) -> tuple[Any, ...]:
    fields = (answer.usage, answer.prompt_tokens, answer.finish_reason, answer.error, answer.done, answer.choices)
    return (len(answer.stamps), *fields)


def read(stream: bytes, cuts: list[int]) -> Answer:
    answer = Answer()
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for t, (a, b) in enumerate(pairwise(places)):
        answer.feed(stream[a:b], t)
    answer.end(len(places))
    return answer


@given(st.lists(st.tuples(EVENTS, ENDINGS), max_size=8), st.lists(st.integers(0, 1 << 20), max_size=12), st.booleans())
@example([(token(), b"\r\n"), (token("é"), b"\r")], list(range(400)), True)
def test_cuts_change_nothing(events: list[tuple[bytes, bytes]], cuts: list[int], whole: bool) -> None:
    stream = b"".join(one.replace(b"\n", ending) for one, ending in events)
    if not whole:
        stream = stream[: cuts[0] % (len(stream) + 1)] if cuts else stream
    expected = read(stream, [])
    assert said(read(stream, cuts)) == said(expected)
    assert said(read(stream, list(range(len(stream))))) == said(expected)


@given(st.lists(EVENTS, max_size=8))
def test_a_frame_changes_nothing(events: list[bytes]) -> None:
    apart: list[int] = []
    for i, one in enumerate(events):
        answer = Answer()
        answer.feed(one, 0)
        apart.append(0 if DONE in events[:i] else len(answer.stamps))
    together = Answer()
    for t, one in enumerate(events):
        together.feed(one, t)
    assert len(together.stamps) == sum(apart)
    assert list(together.stamps) == [t for t, count in enumerate(apart) for _ in range(count)]


@given(st.lists(TEXTS, min_size=1, max_size=6), st.lists(st.integers(0, 1 << 20), max_size=6))
def test_a_token_has_the_time_of_the_read_that_completes_it(texts: list[str], cuts: list[int]) -> None:
    events = [token(text) for text in texts]
    stream = b"".join(events)
    places = [*sorted({cut % len(stream) for cut in cuts} - {0}), len(stream)]
    ends, at = [], 0
    for text, one in zip(texts, events, strict=True):
        at += len(one)
        if text:
            ends.append(next(t for t, place in enumerate(places) if place >= at))
    answer = Answer()
    for t, (a, b) in enumerate(pairwise([0, *places])):
        answer.feed(stream[a:b], t)
    assert list(answer.stamps) == ends
