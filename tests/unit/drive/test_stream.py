"""What counts as a token, event by event."""

from __future__ import annotations

import json

import pytest

from harness.drive import openai_stream
from harness.drive.conclude import conclude
from harness.drive.openai_stream import Answer
from tests.support.drive_servers import DONE, delta, event, good, token, usage


def read(*reads: bytes) -> Answer:
    answer = Answer()
    for i, data in enumerate(reads):
        answer.feed(data, i)
    answer.end(len(reads))
    return answer


NO_TOKENS = {
    "role only": delta({"role": "assistant"}),
    "role and empty content": delta({"role": "assistant", "content": ""}),
    "null content": delta({"content": None}),
    "empty text": token(""),
    "empty tool calls": delta({"content": "", "tool_calls": []}),
    "comment": b": ping\n\n",
    "blank lines": b"\n\n\n\n\n",
    "retry": b"retry: 1000\n\n",
    "other field": b"datum: {}\n\n",
    "no data": b"data:\n\n",
    "no choices": event({"choices": [], "usage": None}),
    "finish alone": token("", finish="length"),
}
ONE_TOKEN = {
    "text": token(),
    "quote": token('"'),
    "backslash": token("\\"),
    "newline": token("\n"),
    "escapes": token('\\"\t\\\\'),
    "non-ASCII as \\u": event({"choices": [{"text": "ü"}]}),
    "non-ASCII raw": 'data: {"choices":[{"text":"é漢🙂"}]}\n\n'.encode(),
    "no UTF-8": b'data: {"choices":[{"text":"\xc3"}]}\n\n',
    "content": delta({"content": " x"}),
    "reasoning": delta({"reasoning_content": "hm"}),
    "reasoning, newer": delta({"reasoning": "hm", "content": None}),
    "tool call": delta({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}),
    "token ids without text": event({"choices": [{"text": "", "token_ids": [7]}]}),
    "with its finish": token(finish="stop"),
    "spaces": b'data: {"choices": [{"index": 0, "text": "x", "finish_reason": null}]}\n\n',
    "blank before the colon": b'data: {"choices": [{"index" : 0, "text" : "x"}]}\n\n',
    "no space after the colon": b'data:{"choices":[{"text":"x"}]}\n\n',
    "event name": b'event: delta\nid: 3\ndata: {"choices":[{"text":"x"}]}\n\n',
    "lines of data": b'data: {"choices":\ndata: [{"text":"x"}]}\n\n',
    "comment before": b': ping\ndata: {"choices":[{"text":"x"}]}\n\n',
    "byte-order mark": b'\xef\xbb\xbfdata: {"choices":[{"text":"x"}]}\n\n',
    "two choices": event({"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]}),
    "second choice": event({"choices": [{"index": 0, "text": ""}, {"index": 1, "text": "b"}]}),
    "null error": event({"error": None, "choices": [{"text": "x"}]}),
    "text in another object": event({"logprobs": {"text": "a"}, "choices": [{"text": "b"}]}),
}


@pytest.mark.parametrize("name", NO_TOKENS)
def test_no_token(name: str) -> None:
    answer = read(token(), NO_TOKENS[name], token("b"), NO_TOKENS[name])
    assert list(answer.stamps) == [0, 2]
    assert answer.error is None
    assert not read(NO_TOKENS[name]).stamps


@pytest.mark.parametrize("name", ONE_TOKEN)
def test_one_token_whatever_came_before(name: str) -> None:
    one = ONE_TOKEN[name]
    assert list(read(one).stamps) == [0]
    assert list(read(token(), one, one, token(), one).stamps) == [0, 1, 2, 3, 4]
    assert list(read(one + one, one).stamps) == [0, 0, 1]
    assert list(read(one.replace(b"\n", b"\r\n"), one.replace(b"\n", b"\r"), one).stamps) == [0, 1, 2]


def test_an_empty_text_in_the_frame_of_a_token_is_none() -> None:
    # The frame around the text is learned from the first; what lies in it must still be a token.
    fields = {"index": 0, "text": "TEXT", "finish_reason": None}
    raw = event({"choices": [fields]}).decode()
    texts = {"x": 1, "": 0, '"': 1, "a\\": 1}
    for text, expected in texts.items():
        answer = read(raw.replace("TEXT", "x").encode(), raw.replace('"TEXT"', json.dumps(text)).encode())
        assert len(answer.stamps) == 1 + expected, text
    smuggled = 'x"}],"usage":{"completion_tokens":9},"choices":[{"text":"'
    assert read(raw.encode(), raw.replace("TEXT", smuggled).encode()).usage == 9


def test_a_plain_token_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer()
    answer.feed(token("first"), 0)
    monkeypatch.setattr(openai_stream, "decode", None)
    answer.feed(token("second"), 1)
    answer.feed(token("third") + token("\\n") + token("fourth")[:40], 2)
    answer.feed(token("fourth")[40:], 3)
    assert list(answer.stamps) == [0, 1, 2, 2, 3]


def test_a_changing_frame_costs_no_token() -> None:
    events = [event({"id": f"c{i}", "created": i, "choices": [{"text": "x"}]}) for i in range(100)]
    assert list(read(*events).stamps) == list(range(100))


def test_what_the_server_says_of_the_end() -> None:
    answer = read(good(5))
    assert (answer.usage, answer.prompt_tokens, answer.finish_reason, answer.done) == (5, 2, "length", True)
    assert answer.response_id == "cmpl-0000002a"
    assert conclude(answer, 5, True) == ("length", None)


def test_an_event_without_its_blank_line_counts_at_the_end() -> None:
    assert read(good().removesuffix(b"\n")).done
    assert read(good().removesuffix(b"\n\n")).done


def test_usage_that_grows_with_every_event_is_the_last() -> None:
    def growing(n: int) -> bytes:
        return event({"choices": [{"text": "x"}], "usage": {"prompt_tokens": 1, "completion_tokens": n}})

    answer = read(growing(1), growing(2), growing(3), DONE)
    assert (answer.usage, list(answer.stamps)) == (3, [0, 1, 2])


@pytest.mark.parametrize(
    "value", ["3", 1.5, True, -1, 10**12 + 1, 18446744073709551615, 1e300, [3], {"n": 3}, [[[]] * 9] * 9]
)
@pytest.mark.parametrize("name", ["completion_tokens", "prompt_tokens"])
def test_a_count_that_is_none_is_a_failure_with_its_value(name: str, value: object) -> None:
    counts: dict[str, object] = {"completion_tokens": 1, "prompt_tokens": 2, name: value}
    answer = read(token(), event({"choices": [], "usage": counts}), DONE)
    finish, error = conclude(answer, 1, True)
    assert finish == "error"
    assert (error or "").startswith(f"bad_usage: {name} is ")
    assert answer.output_tokens == 1


@pytest.mark.parametrize("value", [0, 16.0, 10**12])
def test_the_largest_counts_and_whole_numbers_with_a_point_are_counts(value: float) -> None:
    answer = read(token(), event({"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens": value}}), DONE)
    assert conclude(answer, 1, True) == ("length", None)
    assert answer.prompt_tokens == value


@pytest.mark.parametrize("value", [None, {}, {"completion_tokens": None}, [], 3])
def test_usage_that_says_nothing_is_missing(value: object) -> None:
    answer = read(token(), event({"choices": [], "usage": value}), DONE)
    finish, error = conclude(answer, 1, True)
    assert (finish, (error or "").partition(":")[0]) == ("error", "no_usage")


def test_an_error_after_tokens_stays_the_error() -> None:
    answer = read(token(), event({"error": {"message": "died"}}), event({"error": "second"}), usage(1), DONE)
    assert conclude(answer, 1, True) == ("error", "error_event: died")


def test_a_large_event_is_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_stream, "MAX_EVENT_BYTES", 1000)
    for reads in ([b"data: " + b"x" * 2000], [b"x" * 100] * 20, [token() + b"data: " + b"x" * 2000 + b"\n\n"]):
        answer = read(*reads, good())
        assert answer.broken
        assert (conclude(answer, 1, True)[1] or "").startswith("event_too_large")


@pytest.mark.parametrize(
    ("reason", "tokens", "expected", "ignore_eos", "finish"),
    [
        ("length", 3, 3, True, "length"),
        ("stop", 3, 3, True, "stop"),
        ("stop", 2, 3, True, "short"),
        ("stop", 2, 3, False, "stop"),
        ("length", 2, 3, False, "short"),
        ("tool_calls", 2, 3, False, "stop"),
        ("length", 2, 0, False, "length"),
        (None, 3, 3, True, "length"),
        ("length", 4, 3, False, "error"),
    ],
)
def test_ends(reason: str | None, tokens: int, expected: int, ignore_eos: bool, finish: str) -> None:
    answer = read(token() * tokens, token("", finish=reason), usage(tokens), DONE)
    assert conclude(answer, expected, ignore_eos)[0] == finish


def test_nothing_counts_after_the_end() -> None:
    for late in (token() * 9, usage(99), event({"error": {"message": "late"}}), token()):
        answer = read(good(3), late, late)
        assert (len(answer.stamps), answer.usage, answer.beyond) == (3, 3, False)
        assert conclude(answer, 3, True) == ("length", None)
    answer = read(good(3) + token() * 9)
    assert len(answer.stamps) == 3


def test_tokens_beyond_usage_count_nowhere() -> None:
    answer = read(token(), token(), token(), token(finish="length"), usage(2), DONE)
    assert (list(answer.stamps), answer.output_tokens, answer.beyond) == ([0, 1], 2, True)
    assert conclude(answer, 2, True) == ("length", None)


def test_an_answer_has_a_longest_length() -> None:
    answer = Answer(expected=3)
    for t_ns in range(6000):
        answer.feed(token(f"t{t_ns}"), t_ns)
    assert answer.broken
    assert len(answer.stamps) <= 4 * 3 + 4096 + 1
    assert (conclude(answer, 3, True)[1] or "").startswith("too_many_tokens: more than 4,108 tokens")
    at_once = Answer(expected=3)
    at_once.feed(token() * 6000, 0)
    assert at_once.broken
    # 16 KiB a token and 16 MiB besides; a GiB where nobody asked for a length.
    assert Answer(expected=3).most_bytes == (16 << 20) + 4108 * (16 << 10)
    assert Answer().most_bytes == 1 << 30


@pytest.mark.parametrize(
    "said",
    [
        event({"message": "KV cache is full", "code": 507}),
        event({"detail": "KV cache is full"}),
        event({"type": "error", "error": {"type": "x", "message": "KV cache is full"}}),
        b'event: error\ndata: {"code": 1, "error": "KV cache is full"}\n\n',
        b'{"error": {"message": "KV cache is full"}}',
        b"KV cache is full",
    ],
)
def test_whatever_its_form_what_a_server_says_is_told(said: bytes) -> None:
    assert "KV cache is full" in (conclude(read(said, DONE), 3, True)[1] or "")


def test_an_error_nested_beyond_all_bounds_is_a_failure_like_any_other() -> None:
    deep = b'data: {"error": ' + b"[" * 900 + b"]" * 900 + b"}\n\n"
    assert conclude(read(token(), deep), 3, True) == ("error", "error_event: an object too deep to show")


def test_a_stream_of_many_lines_is_joined_once() -> None:
    answer = Answer()
    for _ in range(50_000):
        answer.feed(b"a\n", 1)
    answer.feed(b"\n" + good(), 2)
    assert list(answer.stamps) == [2, 2, 2]
