"""The METRICS table: every metric's name, unit, direction and formula, for all who show or read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric means; `kind` says whether summary.json holds a value or a distribution."""

    name: str
    label: str
    unit: str
    better: Literal["higher", "lower", "neither"]
    formula: str
    kind: Literal["number", "distribution"]


_THROUGHPUT = "over the span from the first send to the last token; completed requests only"
_STEADY = "over the steady window, which summary.json names; completed requests only"
_TOKENS = "output tokens count at first_token_s (one) and evenly from there to last_token_s"

_TABLE = (
    Metric(
        "request_throughput",
        "Requests",
        "req/s",
        "higher",
        f"requests completed / s, {_THROUGHPUT}",
        "number",
    ),
    Metric("output_throughput", "Output tokens", "tok/s", "higher", f"output tokens / s, {_THROUGHPUT}", "number"),
    Metric(
        "total_throughput",
        "Total tokens",
        "tok/s",
        "higher",
        f"(prompt + output tokens) / s, {_THROUGHPUT}",
        "number",
    ),
    Metric(
        "goodput",
        "Goodput",
        "req/s",
        "higher",
        "requests completed that meet every limit of `slo` / s, over the same span; absent without `slo`. "
        "A one-token answer has no TPOT and meets any limit on it",
        "number",
    ),
    Metric(
        "request_throughput_steady",
        "Requests, steady",
        "req/s",
        "higher",
        f"requests completed / s, {_STEADY}",
        "number",
    ),
    Metric(
        "output_throughput_steady",
        "Output tokens, steady",
        "tok/s",
        "higher",
        f"output tokens / s, {_STEADY}; {_TOKENS}",
        "number",
    ),
    Metric(
        "total_throughput_steady",
        "Total tokens, steady",
        "tok/s",
        "higher",
        f"(prompt + output tokens) / s, {_STEADY}; {_TOKENS}; prompt tokens count at first_token_s",
        "number",
    ),
    Metric(
        "ttft_s",
        "Time to first token",
        "s",
        "lower",
        "open loop: first_token_s - due_s; closed loop: first_token_s - sent_s",
        "distribution",
    ),
    Metric(
        "ttft_from_sent_s",
        "Time to first token, from sent",
        "s",
        "lower",
        "first_token_s - sent_s",
        "distribution",
    ),
    Metric(
        "tpot_s",
        "Time per output token",
        "s",
        "lower",
        "(last_token_s - first_token_s) / (output_tokens - 1), one value a request; undefined for one token",
        "distribution",
    ),
    Metric(
        "itl_s",
        "Inter-token latency",
        "s",
        "lower",
        "every gap between two tokens of a request, each gap once; in a virtual run they follow from the "
        "ends of the steps that decode",
        "distribution",
    ),
    Metric(
        "e2el_s",
        "End-to-end latency",
        "s",
        "lower",
        "open loop: done_s - due_s; closed loop: done_s - sent_s",
        "distribution",
    ),
    Metric(
        "send_lag_s",
        "Send lag",
        "s",
        "neither",
        "sent_s - due_s of every request sent, completed or not: the client's lateness, not the engine's",
        "distribution",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}

# Latencies of a single request that a service level can bound.
SLO_METRICS = ("ttft_s", "ttft_from_sent_s", "tpot_s", "e2el_s")
