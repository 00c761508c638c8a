"""What a policy is told of the time that its own steps took: between two plans, equal decode steps as one."""

from __future__ import annotations

from typing import Protocol


class HearsTime(Protocol):
    """`on_timed_step` of a policy that has it, told before the next plan."""

    def __call__(
        self,
        steps: int,
        prefill_tokens: int,
        prefill_work: float,
        decodes: int,
        context: float,
        seconds: float,
        preempted: int,
        /,
    ) -> None:
        """`steps` equal steps ran, each in `seconds` on average.

        Each computed `prefill_tokens` new prompt tokens, with `prefill_work` = Σ n(context + n/2) over the chunks of n
        (token²), and had `decodes` requests decode whose contexts sum to `context` tokens on average. `preempted`
        requests lost their slot in it. `steps` is above 1 only where nothing but decoding happened.
        """


# steps, prefill tokens, prefill work, decodes, Σ of their contexts over all the steps, ns, preempted
Told = tuple[int, int, float, int, int, int, int]


class TimedSteps:
    """Steps that ran since the last plan, equal decode steps in a row as one: whether an engine leaps cannot matter."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: list[Told] = []

    def add(
        self,
        steps: int,
        prefill_tokens: int,
        prefill_work: float,
        decodes: int,
        context_sum: int,
        duration_ns: int,
        preempted: int,
    ) -> None:
        """`steps` steps ran; `context_sum` and `duration_ns` are sums over all of them."""
        told = self._told
        if told and not prefill_tokens and not preempted:
            last = told[-1]
            if last[3] == decodes and not last[1] and not last[6]:
                told[-1] = (last[0] + steps, 0, 0.0, decodes, last[4] + context_sum, last[5] + duration_ns, 0)
                return
        told.append((steps, prefill_tokens, prefill_work, decodes, context_sum, duration_ns, preempted))

    def tell(self, hear: HearsTime) -> None:
        """Tells of all in order, and forgets them."""
        if not self._told:
            return
        told, self._told = self._told, []
        for steps, prefill_tokens, prefill_work, decodes, context_sum, duration_ns, preempted in told:
            seconds = duration_ns / (1e9 * steps)
            hear(steps, prefill_tokens, prefill_work, decodes, context_sum / steps, seconds, preempted)


def hearer_of(policy: object) -> HearsTime | None:
    """`on_timed_step` of a policy that wants to hear of time; None of one that does not."""
    hear: HearsTime | None = getattr(policy, "on_timed_step", None)
    return hear
