"""What a driver is told, and what it says of each request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How to drive; None is no limit.

    `concurrency` requests in flight make a closed loop, None an open one. Of a closed loop whose concurrency changes it
    is the most, and `levels` has the first row of each phase and what may then be in flight; with `drain` a phase
    begins when everything before it has ended. The time-outs count from when a request is due. After `max_duration_s`
    nothing more is sent. A server that refuses connections for `gone_after_s` while nothing is under way ends the run.
    A request that is answered 429 goes out again up to `retries_429` times, each after what Retry-After says; its
    times count from the first send. `told` as `openai_stream.Answer` has it, `accept` as `conclude`.
    """

    concurrency: int | None = None
    ignore_eos: bool = True
    timeout_s: float | None = 3600.0
    first_token_timeout_s: float | None = None
    connect_timeout_s: float = 10.0
    max_duration_s: float | None = None
    gone_after_s: float = 1.0
    retries_429: int = 0
    levels: tuple[tuple[int, int], ...] = ()
    drain: bool = False
    told: bool = False
    accept: tuple[str, ...] = ()


@dataclass(slots=True)
class Result:
    """A request that has ended: times of the clock in ns, None where it did not come so far.

    `place` is its place in the plan, `stamps` the time of each event with tokens, `tokens` how many each brought
    (None: one each, or not known), `counted` and `beyond` as `openai_stream.Answer` has them. `error` is
    `name: detail`, None of a completion. `echoed` says whether the answer bears the request's own id, None where it
    bears none.
    """

    place: int
    due_ns: int
    sent_ns: int | None
    done_ns: int | None
    stamps: memoryview
    output_tokens: int
    prompt_tokens: int | None
    finish: str
    error: str | None
    tokens: memoryview | None = None
    counted: str = "events"
    beyond: bool = False
    echoed: bool | None = None
