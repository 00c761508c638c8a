"""Conversations as requests: which turn answers which, by role and not by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from workloads.datasets.counting import fault

HUMAN = frozenset({"human", "user"})
MODEL = frozenset({"gpt", "chatgpt", "assistant", "bing", "bard", "model"})
SYSTEM = frozenset({"system"})


class ChatPair(NamedTuple):
    """A prompt and its answer; `at` are their places among the conversation's turns, from 0."""

    prompt: str
    answer: str
    at: tuple[int, int]


def pairs_of(turns: Iterable[tuple[Any, Any]], skipped: Counter[str]) -> Iterator[ChatPair]:
    """The usable pairs of a conversation's (role, text) turns, in order; the rest is counted by reason.

    A pair is a human turn whose next turn is the model's. System turns are passed over. Of two human turns in a
    row the later one is answered.
    """
    prompt: Any = None
    prompt_at = -1
    for at, (written_role, text) in enumerate(turns):
        role = written_role.strip().lower() if isinstance(written_role, str) else None
        if role in SYSTEM:
            continue
        if role in MODEL and prompt_at >= 0:
            reason = fault("prompt", prompt) or fault("answer", text)
            if reason:
                skipped[reason] += 1
            else:
                yield ChatPair(prompt, text, (prompt_at, at))
            prompt_at = -1
            continue
        if prompt_at >= 0:
            skipped["prompt without an answer"] += 1
        prompt_at = at if role in HUMAN else -1
        if prompt_at >= 0:
            prompt = text
        else:
            skipped["answer without a prompt" if role in MODEL else "turn of an unknown role"] += 1
    if prompt_at >= 0:
        skipped["prompt without an answer"] += 1
