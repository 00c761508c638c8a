"""Conversations as requests: which turn answers which, by role and not by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from workloads.datasets.counting import fault

HUMAN = frozenset({"human", "user"})
MODEL = frozenset({"gpt", "chatgpt", "assistant", "bing", "bard", "model"})
SYSTEM = frozenset({"system"})


class Said(NamedTuple):
    """A prompt and its answer; `at` tells their places among the conversation's turns, from 0."""

    prompt: str
    answer: str
    at: tuple[int, int]


def pairs_of(turns: Iterable[tuple[Any, Any]], skipped: Counter[str]) -> Iterator[Said]:
    """The usable pairs of a conversation's (role, text) turns, in order; the rest is counted by reason.

    A pair is a human turn whose next turn is the model's. System turns are passed over. Of two human turns in a
    row the later one is answered.
    """
    prompt: Any = None
    asked = -1
    for at, (given, text) in enumerate(turns):
        role = given.strip().lower() if isinstance(given, str) else None
        if role in SYSTEM:
            continue
        if role in MODEL and asked >= 0:
            if reason := fault("prompt", prompt) or fault("answer", text):
                skipped[reason] += 1
            else:
                yield Said(prompt, text, (asked, at))
            asked = -1
            continue
        if asked >= 0:
            skipped["prompt without an answer"] += 1
        asked = at if role in HUMAN else -1
        if asked >= 0:
            prompt = text
        else:
            skipped["answer without a prompt" if role in MODEL else "turn of an unknown role"] += 1
    if asked >= 0:
        skipped["prompt without an answer"] += 1
