"""What earlier answers of a server teach changes no answer, and spares most of their decoding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.drive import event_frame, openai_stream
from harness.drive.openai_stream import EVENTS, IDS, Answer
from harness.drive.shapes import Known
from tests.support.drive_servers import DONE, event, usage

TEXTS = st.sampled_from([" the", "", "é", '"', "\\", "\n", '","id":"x', '"finish_reason":"stop"'])
REASONS = st.sampled_from([None, None, None, "length", "stop", "", 5])


def one(
    text: str = " a", reason: Any = None, answer: str = "cmpl-1", created: int = 7, told: bool = False, **more: Any
) -> bytes:
    choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": reason} | ({"token_ids": [9]} if told else {})
    return event({"id": answer, "object": "c", "created": created, "choices": [choice | more]})


def read(events: list[bytes], told: bool, known: Known | None) -> Answer:
    answer = Answer(8, told, known)
    for t_ns, data in enumerate(events):
        answer.feed(data, t_ns)
    answer.end(len(events))
    return answer


def said(answer: Answer) -> tuple[Any, ...]:
    names = ("counted", "usage", "prompt_tokens", "finish_reason", "error", "done", "beyond", "choices", "response_id")
    tokens = None if answer.tokens is None else answer.tokens.tolist()
    return (answer.stamps.tolist(), tokens, answer.output_tokens, *(getattr(answer, name) for name in names))


EVENT = st.one_of(
    st.builds(one, TEXTS, REASONS, created=st.sampled_from([7, 8]), told=st.booleans()),
    st.builds(
        one, TEXTS, REASONS, st.sampled_from(["x", "", 'a"b', "a\\b", "é", "7"]), st.sampled_from([7, -1, 1 << 70])
    ),
    st.builds(lambda index, text: one(text, index=index), st.sampled_from([0, 1, -1, None, "0"]), TEXTS),
    st.builds(lambda text: one(text, token_ids=[1, 2]), TEXTS),
    st.builds(lambda told: one(told=told).replace(b" a", b"\xff\xfe"), st.booleans()),
    st.sampled_from(
        [
            usage(3),
            DONE,
            b"data: {oops\n\n",
            event({"id": "x", "choices": [{"index": 0, "text": " a"}], "usage": {"completion_tokens": 1}}),
            b'data: {"id":"a","id":"b","created":7,"choices":[{"index":0,"text":" a","finish_reason":null}]}\n\n',
            b'data: {"id":"a","id":"c","created":7,"choices":[{"index":0,"text":" a","finish_reason":null}]}\n\n',
        ]
    ),
)


@given(st.booleans(), st.lists(st.lists(EVENT, max_size=5), min_size=2, max_size=4))
def test_what_is_known_of_a_server_changes_no_answer(told: bool, answers: list[list[bytes]]) -> None:
    known = Known()
    for events in answers:
        assert said(read(events, told, known)) == said(read(events, told, None))


def test_a_text_that_is_no_utf_8_is_a_token_and_teaches_nothing() -> None:
    known = Known()
    answer = read([one().replace(b" a", b"\xff\xfe")], False, known)
    assert (answer.stamps.tolist(), answer.error) == ([0], None)
    assert known.fit(one().strip()) is None


@pytest.mark.parametrize(("told", "counted"), [(False, EVENTS), (True, IDS)])
def test_of_a_known_server_no_token_is_decoded(told: bool, counted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known()

    def stream(name: str, created: int, reason: str) -> list[bytes]:
        return [one(f"t{i}", reason if i == 3 else None, name, created, told) for i in range(4)]

    for reason in ("length", "stop"):
        read(stream("cmpl-a", 100, reason), told, known)
    decoded: list[bytes] = []

    def watched(data: bytes) -> Any:
        decoded.append(data)
        return {}

    with monkeypatch.context() as patched:
        patched.setattr(openai_stream, "decode", watched)
        patched.setattr(event_frame, "decoded", watched)
        answer = read(stream("chatcmpl-0.b:C", 2_000_000_000, "stop"), told, known)
    assert not decoded
    assert answer.stamps.tolist() == [0, 1, 2, 3]
    assert (answer.response_id, answer.finish_reason, answer.counted) == ("chatcmpl-0.b:C", "stop", counted)


def test_a_server_whose_answers_differ_is_not_looked_at_for_ever() -> None:
    known = Known()
    for i in range(100):
        read([one(more=i)], False, known)
    # By now nothing is learned any more, not even what would fit.
    read([one(more="same")], False, known)
    assert known.fit(one(more="same").strip()) is None


def test_tokens_of_a_cut_answer_are_those_that_its_running_usage_told() -> None:
    answer = Answer(8, told=True)
    for n in range(1, 7):
        choice = {"index": 0, "text": f"t{n}", "finish_reason": None}
        counts = {"prompt_tokens": 2, "total_tokens": 2 + n, "completion_tokens": n}
        answer.feed(event({"id": "x", "choices": [choice], "usage": counts}), n)
    assert answer.stamps.tolist() == [1, 2, 3, 4, 5, 6]
    assert answer.output_tokens == 6
