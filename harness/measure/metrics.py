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
_STEADY = "over the steady window, which summary.json names, of a closed loop; completed requests only"
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
    Metric("goodput_steady", "Goodput, steady", "req/s", "higher", f"goodput, {_STEADY}", "number"),
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
        "(last_token_s - first_token_s) / (output_tokens - those of the first event), one value a request; undefined "
        "where the first event brings all, or the answer was held back",
        "distribution",
    ),
    Metric(
        "itl_s",
        "Inter-token latency",
        "s",
        "lower",
        "every gap between two tokens of a request, each gap once; tokens that come together share the gap before "
        "them; in a virtual run the gaps follow from the ends of the steps that decode",
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
    *(
        Metric(
            f"{name}_steady",
            f"{label}, steady",
            "s",
            "lower",
            f"{name} without the first wave of a closed loop (its first n requests, n in flight) and the last one (its "
            "last n): these meet an engine that fills or empties; needs 3 waves",
            "distribution",
        )
        for name, label in (
            ("ttft_s", "Time to first token"),
            ("tpot_s", "Time per output token"),
            ("itl_s", "Inter-token latency"),
            ("e2el_s", "End-to-end latency"),
        )
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


_GAP = "gap = max - min over the requests that produce a token in a step, of {}; steps that produce none do not count"
_COUNTED = {
    "": "the tokens each has generated after it",
    "_kv": "each one's KV footprint (prompt + generated) after it",
}


def _fairness(suffix: str) -> list[Metric]:
    """The fairness metrics of one variant: decode has no suffix, KV footprints have `_kv`."""
    kind = "KV gap" if suffix else "Gap"
    prefix = "KV " if suffix else ""
    gap = _GAP.format(_COUNTED[suffix])
    over = "α is --alpha, or else the policy's own where it bounds this count; absent without one"
    number: Literal["number"] = "number"
    charged = f"E = Σ over steps of (n · max - Σ) of {_COUNTED[suffix]}, n requests producing"
    return [
        Metric(f"gap_mean{suffix}", f"{kind}, mean", "tokens", "lower", f"mean over steps of the gap; {gap}", number),
        Metric(f"gap_p99{suffix}", f"{kind}, p99", "tokens", "lower", "99th percentile over steps of the gap", number),
        Metric(f"gap_max{suffix}", f"{kind}, largest", "tokens", "lower", "largest gap of any step", number),
        Metric(
            f"violation_share{suffix}", f"{kind}s over α", "", "lower", f"share of steps with gap > α; {over}", number
        ),
        Metric(
            f"excess_mean{suffix}",
            f"{kind} over α, mean",
            "tokens",
            "lower",
            "mean over steps of max(gap - α, 0)",
            number,
        ),
        Metric(f"externality{suffix}", f"{prefix}Externality", "tokens", "lower", charged, number),
        Metric(
            f"externality_per_token{suffix}",
            f"{prefix}Externality a token",
            "tokens",
            "lower",
            "E / tokens produced; at most α where no gap exceeds α",
            number,
        ),
        *(
            Metric(f"{name}{suffix}", f"{label}, by time", unit, "lower", f"{what}, each step by its duration", number)
            for name, label, unit, what in (
                ("gap_mean_time", f"{kind}, mean", "tokens", "mean of the gap"),
                ("violation_share_time", f"{kind}s over α", "", "share of time with gap > α"),
                ("excess_mean_time", f"{kind} over α, mean", "tokens", "mean of max(gap - α, 0)"),
                ("externality_time", f"{prefix}Externality", "token·s", "E"),
            )
        ),
    ]


# From the step log: absent, never zero, where a run has none.
FAIRNESS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *_fairness(""),
        *_fairness("_kv"),
        Metric(
            "gap_mean_steady",
            "Gap, mean, steady",
            "tokens",
            "lower",
            "gap_mean over a closed loop's steps from the end of as many requests as are in flight to the last send",
            "number",
        ),
        Metric(
            "makespan_steps",
            "Makespan",
            "steps",
            "neither",
            "T, the steps that the engine made; fewer are sooner done only where all take equally long",
            "number",
        ),
        Metric("busy_steps", "Busy steps", "steps", "neither", "steps in which a request produces a token", "number"),
    )
}

# Computed by `bench profit` from a run's records and never part of its summary: prices are no result.
PROFITS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "profit_tokenstep",
            "Profit, token-step",
            "",
            "higher",
            "ρ0·O - τ·Q - c·T - τ·E: tokens produced O, Q = Σ over steps of the producing requests' tokens, "
            "T steps with work, externality E; needs a step log",
            "number",
        ),
        Metric(
            "profit_money",
            "Profit, money",
            "",
            "higher",
            "price per prompt and output token × tokens of completed requests - price of a GPU hour × hours from the "
            "first send to the last token",
            "number",
        ),
    )
}

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE} | FAIRNESS | PROFITS

# Latencies of a single request that a service level can bound.
SLO_METRICS = ("ttft_s", "ttft_from_sent_s", "tpot_s", "e2el_s")
