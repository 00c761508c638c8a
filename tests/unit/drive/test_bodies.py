"""What a request body says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.drive.bodies import Prompt, chat_body, completion_body, hint_fields
from harness.drive.plan import Plan
from tests.support.drive_servers import plan_of

ASKED = {"max_tokens": 7, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("prompt", ["text", [1, 2], np.array([1, 2])])
def test_a_completion_of_text_or_ids(prompt: Prompt) -> None:
    body = json.loads(completion_body("m", prompt, 7, seed=3))
    plain = prompt if isinstance(prompt, str) else [1, 2]
    assert body == ASKED | {"model": "m", "prompt": plain, "ignore_eos": True, "seed": 3}


def test_a_chat_and_what_the_user_adds() -> None:
    messages = [{"role": "user", "content": "hi"}]
    body = json.loads(chat_body("m", messages, 7, ignore_eos=False, extra={"top_p": 0.5, "temperature": 1}))
    assert body == ASKED | {"model": "m", "messages": messages, "top_p": 0.5, "temperature": 1}


def test_what_the_scheduler_is_told_of_the_output() -> None:
    for hint, told in ((7, 7), ((5, 9), [5, 9])):
        body = json.loads(completion_body("m", "text", 7, extra=hint_fields(hint)))
        assert body["vllm_xargs"] == {"out_hint": told}
    assert "vllm_xargs" not in json.loads(completion_body("m", "text", 7, extra=hint_fields(None)))


def test_a_plan_keeps_bodies_ids_and_shares_apart() -> None:
    bodies = [bytes([65 + i]) * i for i in range(10)]
    plan = Plan.write(plan_of(10, body=bodies, id=[f"né{i}" for i in range(10)], session=[0, 0, 1, 1, None] * 2))
    try:
        assert [plan.body(i) for i in range(10)] == bodies
        assert [plan.id(i) for i in range(10)] == [f"né{i}" for i in range(10)]
        shares = [plan.share(k, 3) for k in range(3)]
        assert sorted(i for share in shares for i in share) == list(range(10))
        assert {0, 1, 5, 6} <= set(shares[0])
    finally:
        plan.close()
