"""What a policy is told of the time that its steps took."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policies.plugin.step_rows import PrefillChunk, StepRows
from policies.timed import TimedSteps, hearer_of

DECODES = st.tuples(
    st.just(0), st.just(0.0), st.integers(1, 2), st.integers(0, 50), st.integers(1, 9), st.integers(0, 1)
)
PREFILLS = st.tuples(
    st.integers(1, 2), st.floats(0, 9), st.integers(0, 2), st.integers(0, 50), st.integers(1, 9), st.integers(0, 1)
)


class Hearing:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[float, ...]] = []

    def on_timed_step(self, *step: Any) -> None:
        self.told.append(step)


def test_equal_decode_steps_in_a_row_are_told_as_one_with_their_mean() -> None:
    timed, hearing = TimedSteps(), Hearing()
    timed.add(1, 100, 5000.0, 3, 60, 4_000_000, 0)
    timed.add(1, 0, 0.0, 4, 164, 2_000_000, 0)
    timed.add(2, 0, 0.0, 4, 168 + 172, 7_000_000, 0)
    timed.add(1, 0, 0.0, 4, 176, 3_000_000, 1)  # one lost its slot: another step
    timed.add(1, 0, 0.0, 4, 180, 3_000_000, 0)
    timed.add(1, 0, 0.0, 3, 150, 3_000_000, 0)
    timed.tell(hearing.on_timed_step)
    assert hearing.told == [
        (1, 100, 5000.0, 3, 60, 0.004, 0),
        (3, 0, 0.0, 4, 168, 0.003, 0),
        (1, 0, 0.0, 4, 176, 0.003, 1),
        (1, 0, 0.0, 4, 180, 0.003, 0),
        (1, 0, 0.0, 3, 150, 0.003, 0),
    ]
    timed.tell(hearing.on_timed_step)
    assert len(hearing.told) == 5


@given(st.lists(DECODES | PREFILLS, max_size=20), st.data())
def test_nothing_of_the_time_is_lost_whatever_is_added_at_once(
    steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    one_by_one, at_once = TimedSteps(), TimedSteps()
    for prefill, work, decodes, context, ns, preempted in steps:
        alone = not prefill and not preempted
        count = data.draw(st.integers(1, 4)) if alone else 1
        for _ in range(count):
            one_by_one.add(1, prefill, work, decodes, context, ns, preempted)
        at_once.add(count, prefill, work, decodes, context * count, ns * count, preempted)
    first, second = Hearing(), Hearing()
    one_by_one.tell(first.on_timed_step)
    at_once.tell(second.on_timed_step)
    assert first.told == second.told
    assert len(first.told) <= len(steps)


def test_a_policy_without_the_method_is_not_told() -> None:
    assert hearer_of(object()) is None
    assert hearer_of(Hearing()) is not None


def test_inside_vllm_a_step_takes_from_its_schedule_or_the_tokens_before_to_its_own_tokens() -> None:
    rows, hearing = StepRows(), Hearing()
    rows.timed = TimedSteps()
    prompt: PrefillChunk = ("a", 12, 12, False, 12, 1, 9, 0)

    def scheduled(begun: int, tokens: dict[str, int], chunks: list[PrefillChunk]) -> None:
        rows.calls.append((rows.scheduled, (begun, tokens, chunks, 0, begun, 1, 0, 0, 16, None)))

    scheduled(1_000, {"a": 12}, [prompt])
    scheduled(1_500, {"a": 1}, [])  # asynchronous: while the prompt is computed
    rows.calls.append((rows.came, (3_000,)))
    scheduled(3_100, {"a": 1}, [])
    rows.tell_of_time(hearing.on_timed_step)
    assert hearing.told == [(1, 12, 72.0, 0, 0.0, 2_000 / 1e9, 0)], "the other two are still on the way"
    rows.calls.append((rows.came, (4_000,)))
    rows.calls.append((rows.came, (4_400,)))
    rows.tell_of_time(hearing.on_timed_step)
    assert hearing.told[1:] == [(2, 0, 0.0, 1, 13.5, 1_400 / 2 / 1e9, 0)]
