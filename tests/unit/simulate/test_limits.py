"""What fits neither the model nor the cache is said before the run, with what to do about it."""

import numpy as np

from harness.simulate.limits import EngineLimits, notes_on_too_long, too_long
from workloads.core.trace import Trace

TRACE = Trace("by hand", np.array([10, 40, 90, 60], np.int64), np.array([5, 10, 10, 50], np.int64))


def test_the_count_the_limit_and_the_remedy_are_said() -> None:
    assert notes_on_too_long(TRACE, 100) == [
        "1 of 4 requests fail as too long, with more tokens of prompt and output than max_model_len of 100: "
        "give more --max-model-len, or leave them out: max_prompt_tokens=59"
    ]
    assert notes_on_too_long(TRACE, 100, 96) == [
        "2 of 4 requests fail as too long, with more tokens of prompt and output than the KV cache of 96: "
        "give more --kv-tokens, or leave them out: max_prompt_tokens=59"
    ]


def test_what_is_left_fits_and_nothing_is_said_where_all_fit() -> None:
    assert notes_on_too_long(TRACE.take(np.flatnonzero(TRACE.prompt_tokens <= 59)), 100, 96) == []
    assert notes_on_too_long(TRACE, 110, 110) == []
    assert too_long(TRACE, EngineLimits(slots=1, token_budget=8, kv_blocks=7, max_model_len=200)) == {2, 3}


def test_where_no_prompt_is_short_enough_none_is_suggested() -> None:
    trace = Trace("by hand", np.array([1], np.int64), np.array([500], np.int64))
    assert notes_on_too_long(trace, 100)[0].endswith("give more --max-model-len")
