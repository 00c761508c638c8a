"""How many tokens an event holds, where the server tells it and is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.drive import openai_stream
from harness.drive.conclude import conclude
from harness.drive.openai_stream import EVENTS, IDS, USAGE, Answer
from tests.support.drive_servers import DONE, event, usage

Part = tuple[str, int]  # a text, and how many tokens it came with


def by_ids(parts: list[Part], chat: bool = False) -> list[bytes]:
    """As vLLM sends them with return_token_ids: the first event echoes the prompt."""
    out = [event({"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})] if chat else []
    for i, (text, tokens) in enumerate(parts):
        choice: dict[str, Any] = {"index": 0, **({"delta": {"content": text}} if chat else {"text": text})}
        choice |= {"finish_reason": None, "stop_reason": None, "token_ids": list(range(100, 100 + tokens))}
        if not i and not chat:
            choice["prompt_token_ids"] = [1, 2]
        out.append(event({"id": "x", "object": "c", "choices": [choice]}))
    return out


def by_usage(parts: list[Part], chat: bool = False) -> list[bytes]:
    """As with continuous_usage_stats: each event has the counts so far."""

    def counts(tokens: int) -> dict[str, int]:
        return {"prompt_tokens": 2, "total_tokens": 2 + tokens, "completion_tokens": tokens}

    role = {"index": 0, "delta": {"role": "assistant", "content": ""}}
    out = [event({"id": "x", "choices": [role], "usage": counts(0)})] if chat else []
    seen = 0
    for text, tokens in parts:
        seen += tokens
        choice = {"index": 0, **({"delta": {"content": text}} if chat else {"text": text}), "finish_reason": None}
        out.append(event({"id": "x", "object": "c", "choices": [choice], "usage": counts(seen)}))
    return out


def read(events: list[bytes], tokens: int, told: bool = True) -> Answer:
    answer = Answer(tokens, told)
    for t_ns, one in enumerate([*events, usage(tokens), DONE]):
        answer.feed(one, t_ns)
    answer.end(len(events))
    return answer


FORMS = {IDS: by_ids, USAGE: by_usage}
TEXTS = st.sampled_from(["", " the", "é", '"', "\\", "\n", "漢", '"completion_tokens": 7', '"token_ids": [1]'])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chat", [False, True])
def test_tokens_that_show_no_text_are_stamped(form: str, chat: bool) -> None:
    events = FORMS[form]([("", 1)] * 50, chat)
    answer = read(events, 50)
    assert list(answer.stamps) == list(range(chat, 50 + chat))
    assert (answer.counted, answer.tokens) == (form, None)
    assert conclude(answer, 50, True) == ("length", None)


@pytest.mark.parametrize("form", FORMS)
def test_several_tokens_an_event(form: str) -> None:
    answer = read(FORMS[form]([(" a b c d", 4), (" e", 1), ("", 0), (" f g", 2)]), 7)
    assert list(answer.stamps) == [0, 1, 3]
    assert answer.tokens is not None
    assert answer.tokens.tolist() == [4, 1, 2]
    assert conclude(answer, 7, True) == ("length", None)


@given(
    st.sampled_from(sorted(FORMS)),
    st.booleans(),
    st.lists(st.tuples(TEXTS, st.sampled_from([1, 1, 1, 1, 0, 2, 5])), min_size=1, max_size=12),
)
def test_each_event_counts_what_it_says(form: str, chat: bool, parts: list[Part]) -> None:
    tokens = sum(one for _, one in parts)
    # A text before the first token that counts as none is nothing that a server sends.
    assume(parts[0][1])
    answer = read(FORMS[form](parts, chat), tokens)
    expected = [(t_ns + chat, one) for t_ns, (_, one) in enumerate(parts) if one]
    held = answer.tokens.tolist() if answer.tokens is not None else [1] * len(answer.stamps)
    assert list(zip(answer.stamps, held, strict=True)) == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chat", [False, True])
def test_an_event_of_one_token_is_not_decoded(form: str, chat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    events = FORMS[form]([(f"t{i}", 1) for i in range(8)], chat)
    answer = Answer(8, told=True)
    for t_ns, one in enumerate(events[:4]):
        answer.feed(one, t_ns)
    monkeypatch.setattr(openai_stream, "decode", None)
    answer.feed(events[4], 4)
    answer.feed(events[5] + events[6][:30], 5)
    answer.feed(events[6][30:], 6)
    assert list(answer.stamps) == list(range(chat, 7))


def test_a_server_that_is_not_believed_counts_by_events() -> None:
    for make in (by_ids, by_usage):
        answer = read(make([(" a b", 2), ("", 1), (" c", 1)]), 4, told=False)
        assert answer.counted == EVENTS
        assert answer.tokens is None


def constant(tokens: int) -> Callable[[list[Part]], list[bytes]]:
    def make(parts: list[Part]) -> list[bytes]:
        counts = {"prompt_tokens": 2, "completion_tokens": tokens}
        return [event({"choices": [{"text": text}], "usage": counts}) for text, _ in parts]

    return make


def test_counts_that_do_not_run_along_are_not_taken_for_tokens() -> None:
    at_the_end_only = read(constant(0)([(" a", 1)] * 5), 5)
    assert (list(at_the_end_only.stamps), at_the_end_only.counted) == ([0, 1, 2, 3, 4], EVENTS)
    of_each = read(constant(1)([(" a", 1)] * 5), 5)
    assert of_each.counted == EVENTS
    assert of_each.stamps[0] == 0


def test_usage_that_falls_is_a_failure() -> None:
    answer = read([*by_usage([(" a", 3)]), *by_usage([(" b", 1)])], 4)
    assert conclude(answer, 4, True) == ("error", "bad_usage: it falls from 3 to 1 tokens")
