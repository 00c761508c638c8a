"""Metrics of small runs, worked by hand."""

import dataclasses
import math
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.records import REQUESTS, STEPS
from harness.measure.glossary import glossary
from harness.measure.metrics import METRICS
from harness.measure.summary import COUNTS, count, summarise
from tests.support.places import ROOT
from tests.support.runfactory import SPEC, request, step, table_of

OPEN = dataclasses.replace(SPEC, arrival="poisson:rate=1.0", engine="endpoint")

# Due at 0, 1 and 2 s, sent late; a long one, a short one, a failed one, and one of a single token.
ROWS = [
    request(
        0, due_s=0.0, sent_s=0.5, first_token_s=2.0, last_token_s=5.0, done_s=5.5,
        prompt_tokens=100, output_tokens=4, token_gaps_s=[0.5, 0.5, 2.0],
    ),
    request(
        1, due_s=1.0, sent_s=1.25, first_token_s=3.0, last_token_s=4.0, done_s=4.5,
        prompt_tokens=50, output_tokens=2, token_gaps_s=[1.0],
    ),
    request(
        2, due_s=2.0, sent_s=2.0, first_token_s=4.0, last_token_s=None, done_s=6.0,
        prompt_tokens=70, output_tokens=1, token_gaps_s=None, finish="error", error="connection reset",
    ),
    request(
        3, due_s=3.0, sent_s=3.0, first_token_s=3.5, last_token_s=3.5, done_s=3.5,
        prompt_tokens=10, output_tokens=1, token_gaps_s=[], finish="stop",
    ),
]  # fmt: skip


def summary(rows: list[dict[str, Any]], closed: bool = False, **spec: Any) -> dict[str, Any]:
    return summarise(table_of(REQUESTS, rows), None, dataclasses.replace(OPEN, **spec), closed)


def test_open_loop_latencies_start_at_due() -> None:
    metrics = summary(ROWS)["metrics"]
    assert metrics["ttft_s"]["mean"] == pytest.approx((2.0 + 2.0 + 0.5) / 3, abs=1e-12)
    assert metrics["ttft_from_sent_s"]["mean"] == pytest.approx((1.5 + 1.75 + 0.5) / 3, abs=1e-12)
    assert metrics["e2el_s"]["max"] == 5.5
    assert metrics["e2el_s"]["p50"] == 3.5
    assert metrics["ttft_s"]["count"] == 3
    assert metrics["ttft_s"]["p90"] is None
    assert metrics["send_lag_s"]["mean"] == pytest.approx((0.5 + 0.25) / 4)
    assert metrics["send_lag_s"]["count"] == 4


def test_closed_loop_latencies_start_at_sent() -> None:
    metrics = summary(ROWS, closed=True, arrival="closed:concurrency=2")["metrics"]
    assert metrics["ttft_s"]["mean"] == pytest.approx((1.5 + 1.75 + 0.5) / 3)
    assert metrics["e2el_s"]["max"] == 5.0


def test_time_per_token_and_gaps() -> None:
    metrics = summary(ROWS)["metrics"]
    assert metrics["tpot_s"]["count"] == 2
    assert metrics["tpot_s"]["mean"] == pytest.approx((3.0 / 3 + 1.0) / 2)
    assert metrics["itl_s"]["count"] == 4
    assert metrics["itl_s"]["mean"] == pytest.approx(1.0)
    assert metrics["itl_s"]["p50"] == 0.75
    assert metrics["itl_s"]["max"] == 2.0


def test_throughput_spans_first_send_to_last_token_and_counts_the_completed() -> None:
    metrics = summary(ROWS)["metrics"]
    assert metrics["request_throughput"]["value"] == pytest.approx(3 / 4.5)
    assert metrics["output_throughput"]["value"] == pytest.approx(7 / 4.5)
    assert metrics["total_throughput"]["value"] == pytest.approx((7 + 160) / 4.5)
    assert metrics["request_throughput"]["low"] is None
    assert metrics["request_throughput"]["unit"] == "req/s"


def test_goodput_counts_who_meets_every_limit() -> None:
    assert "goodput" not in summary(ROWS)["metrics"]
    limits = {"ttft_s": 2.0, "tpot_s": 1.0, "e2el_s": 4.0}
    assert summary(ROWS, slo=limits)["metrics"]["goodput"]["value"] == pytest.approx(2 / 4.5)
    assert summary(ROWS, slo={"ttft_s": 1.9999})["metrics"]["goodput"]["value"] == pytest.approx(1 / 4.5)
    with pytest.raises(UserError, match="bounds one of"):
        summary(ROWS, slo={"itl_s": 1.0})


def test_the_steady_window_holds_nine_tenths_of_the_peak() -> None:
    # Two in flight from 1 to 4 s, three only from 2 to 3 s, the peak.
    rows = [
        request(0, at=0, last_token_s=4.0, done_s=4.0),
        request(1, at=1, last_token_s=6.0, done_s=6.0),
        request(2, at=2, first_token_s=2.5, last_token_s=3.0, done_s=3.0),
    ]
    window = summary(rows, closed=True)["window"]
    assert (window["start_s"], window["end_s"]) == (2.0, 3.0)
    assert "peak of 3" in window["rule"]
    metrics = summary(rows, closed=True)["metrics"]
    # From 2 to 3 s: the whole of request 2, the first token of request 1 and a fifth ... of its last.
    assert metrics["request_throughput_steady"]["value"] == 1.0
    tokens = 2 + (1 / 3) * 1 + (1 / 4) * 1
    assert metrics["output_throughput_steady"]["value"] == pytest.approx(tokens)


def test_a_closed_loop_of_some_waves_is_measured_between_its_first_and_its_last() -> None:
    # Two in flight, each for 2 s: sends at 0, 0, 2, 2, 4, 4, 6 and 6 s. All tokens but the first come at the end.
    rows = [
        request(n, at=n // 2 * 2, first_token_s=n // 2 * 2 + 1, last_token_s=n // 2 * 2 + 2.0, done_s=n // 2 * 2 + 2.0)
        for n in range(8)
    ]
    told = summarise(table_of(REQUESTS, rows), None, dataclasses.replace(SPEC, arrival="closed:concurrency=2"), True)
    assert (told["window"]["start_s"], told["window"]["end_s"]) == (2.0, 6.0)
    assert told["window"]["rule"].endswith("in flight, without the first wave and the last")
    assert told["metrics"]["request_throughput_steady"]["value"] == pytest.approx(4 / 4)
    # Two waves have nothing between the first and the last.
    rows = rows[:4]
    told = summarise(table_of(REQUESTS, rows), None, dataclasses.replace(SPEC, arrival="closed:concurrency=2"), True)
    assert (told["window"]["start_s"], told["window"]["end_s"]) == (0.0, 4.0)
    assert told["window"]["rule"].endswith("in flight")


def test_an_open_loop_has_no_steady_window() -> None:
    # Its peak is the arrivals' doing: the rate within it would be above what was ever served.
    found = summary([request(n, at=n * 0.5) for n in range(50)])
    assert found["window"] is None
    assert not [name for name in found["metrics"] if name.endswith("_steady")]


def test_a_closed_loop_of_one_is_steady_all_along() -> None:
    rows = [
        request(
            n, due_s=2.0 * n, sent_s=2 * n + 0.01, first_token_s=2 * n + 1, last_token_s=2 * n + 2, done_s=2 * n + 2
        )
        for n in range(5)
    ]
    window = summary(rows, closed=True)["window"]
    assert (window["start_s"], window["end_s"]) == (0.0, 10.0)
    # Where nobody knows when its slot became free it is in flight from its send.
    rows[0]["due_s"] = None
    window = summary(rows, closed=True)["window"]
    assert (window["start_s"], window["end_s"]) == (0.01, 10.0)


def test_gaps_of_a_virtual_run_follow_from_the_steps() -> None:
    # Ends at 1, 2, 4, 5 (prefill only), 7 and 8 s.
    steps = [step(0, 1, 0, 5), step(1, 1, 1), step(2, 2, 1, 5), step(4, 1, 0, 5), step(5, 2, 3), step(7, 1, 2)]
    common = {"due_s": 0.0, "sent_s": 0.0}
    rows = [
        request(0, first_token_s=1.0, last_token_s=7.0, output_tokens=4, token_gaps_s=None, **common),
        request(1, first_token_s=4.0, last_token_s=8.0, output_tokens=3, token_gaps_s=None, **common),
        request(2, first_token_s=5.0, last_token_s=8.0, output_tokens=3, token_gaps_s=[1.5, 1.5], **common),
    ]
    spec = dataclasses.replace(SPEC, engine="simulated")
    metrics = summarise(table_of(REQUESTS, rows), table_of(STEPS, steps), spec, True)["metrics"]
    # Request 0: 1, 2, 3 (over the prefill step). Request 1: 3, 1. Request 2: its own list.
    assert metrics["itl_s"]["count"] == 7
    assert metrics["itl_s"]["mean"] == pytest.approx((1 + 2 + 3 + 3 + 1 + 1.5 + 1.5) / 7)
    assert metrics["itl_s"]["max"] == 3.0
    assert metrics["itl_s"]["p50"] == 1.5


def test_gaps_that_a_real_server_did_not_give_are_not_made_up() -> None:
    rows = [request(0, token_gaps_s=None)]
    spec = dataclasses.replace(SPEC, engine="vllm")
    made = summarise(table_of(REQUESTS, rows), table_of(STEPS, [step(1, 1, 1)]), spec, True)
    assert made["metrics"]["itl_s"]["count"] == 0
    assert made["metrics"]["itl_s"]["mean"] is None


def test_counts() -> None:
    counts = count(table_of(REQUESTS, ROWS), table_of(STEPS, [step(0, 1, 1, 1), step(1, 1, 1)]))
    assert counts == {
        "requests": 4,
        "completed": 3,
        "failed": 1,
        "output_tokens": 7,
        "prompt_tokens": 160,
        "steps": 2,
        "mixed_steps": 1,
        "preemptions": 0,
        "finishes": {"error": 1, "length": 2, "stop": 1},
    }
    # What a run directory may hold and the JSON document shows.
    assert tuple(counts) == (*COUNTS, "finishes")


def test_nothing_completed_gives_rates_of_zero_and_no_latencies() -> None:
    rows = [request(n, finish="error", last_token_s=n + 1.0, first_token_s=n + 1.0) for n in range(3)]
    made = summary(rows)
    assert made["metrics"]["output_throughput"]["value"] == 0
    assert made["metrics"]["ttft_s"] == {
        "mean": None, "p50": None, "p90": None, "p95": None, "p99": None, "max": None,
        "count": 0, "unit": "s", "low": None, "high": None,
    }  # fmt: skip


def test_no_rows_at_all() -> None:
    made = summary([])
    assert made["window"] is None
    assert "output_throughput" not in made["metrics"]


def test_every_number_is_in_the_table_and_finite() -> None:
    made = summary(ROWS, slo={"ttft_s": 1.0})
    for name, values in made["metrics"].items():
        assert values["unit"] == METRICS[name].unit
        assert all(math.isfinite(one) for one in values.values() if isinstance(one, float))


def test_the_glossary_is_up_to_date() -> None:
    page = ROOT / "docs" / "glossary.md"
    assert page.read_text(encoding="utf-8") == glossary(), "python -m harness.measure.glossary > docs/glossary.md"
    assert all(f"`{name}`" in glossary() for name in METRICS)
