"""Percentiles, windows, gaps and intervals against plain definitions, and how often intervals are right."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.records import REQUESTS, STEPS
from harness.measure.arrivals import Arrivals
from harness.measure.columns import Requests
from harness.measure.estimate import ratio_of_sums, repeats_ratio, within_run_ratio
from harness.measure.gaps import token_gaps
from harness.measure.measured import measure
from harness.measure.sample import Sample
from harness.measure.statistics import PERCENTILES, block_length, enough, mean_variance, weighted_percentile
from harness.measure.summary import summarise
from harness.measure.window import longest_span
from tests.support.runfactory import SECOND, SPEC, request, step, table_of, toy_run

NANOS = st.integers(0, 10**12)


@given(st.lists(NANOS, min_size=1, max_size=200), st.sampled_from(PERCENTILES))
def test_percentiles_are_numpys(values: list[int], percent: int) -> None:
    ascending = np.sort(np.array(values))
    assert weighted_percentile(ascending, None, percent) == pytest.approx(np.percentile(values, percent), rel=1e-12)


@given(st.dictionaries(NANOS, st.integers(1, 20), min_size=1, max_size=40), st.sampled_from(PERCENTILES))
def test_weighted_percentiles_are_those_of_the_whole_multiset(counts: dict[int, int], percent: int) -> None:
    values = np.array(sorted(counts))
    times = np.array([counts[int(value)] for value in values])
    found = weighted_percentile(values, np.cumsum(times), percent)
    assert found == pytest.approx(np.percentile(np.repeat(values, times), percent), rel=1e-12)


def test_percentiles_need_samples() -> None:
    least = {percent: next(n for n in range(1, 200) if enough(percent, n)) for percent in PERCENTILES}
    assert least == {50: 2, 90: 10, 95: 20, 99: 100}


@st.composite
def stepped_runs(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[int]]:
    """Steps with and without decodes, requests that decode through them, and every gap by walking the tokens."""
    durations = draw(st.lists(st.tuples(st.integers(1, 10**9), st.booleans()), min_size=2, max_size=30))
    steps, ends, clock = [], [], 0
    for took, decodes in durations:
        steps.append(step(clock / SECOND, took / SECOND, int(decodes), 0 if decodes else 7))
        clock += took
        ends.append((clock, decodes))
    rows: list[dict[str, Any]] = []
    gaps: list[int] = []
    for row in range(draw(st.integers(0, 8))):
        born = draw(st.integers(0, len(ends) - 1))
        tokens = [ends[born][0]] + [end for end, decodes in ends[born + 1 :] if decodes]
        tokens = tokens[: draw(st.integers(1, len(tokens)))]
        own = [after - before for before, after in itertools.pairwise(tokens)]
        finish = draw(st.sampled_from(["length", "stop", "error"]))
        rows.append(
            request(
                row,
                due_s=0.0,
                sent_s=0.0,
                first_token_s=tokens[0] / SECOND,
                last_token_s=tokens[-1] / SECOND,
                done_s=tokens[-1] / SECOND,
                output_tokens=len(tokens),
                finish=finish,
                token_gaps_s=[one / SECOND for one in own] if draw(st.booleans()) else None,
            )
        )
        gaps += own if finish != "error" else []
    return draw(st.permutations(rows)), steps, gaps


@given(stepped_runs())
@settings(max_examples=200, deadline=None)
def test_gaps_are_those_of_walking_every_token(
    run: tuple[list[dict[str, Any]], list[dict[str, Any]], list[int]],
) -> None:
    rows, steps, gaps = run
    table = table_of(REQUESTS, rows)
    requests = Requests.of(table)
    sample = token_gaps(requests, Arrivals.of(requests, table, real=False), table_of(STEPS, steps))
    assert sample.count == len(gaps)
    assert int(np.sum(sample.sums)) == sum(gaps)
    for percent in PERCENTILES:
        if enough(percent, len(gaps)):
            found = sample.percentile_s(percent)
            assert found == pytest.approx(np.percentile(gaps, percent) / SECOND, rel=1e-12)
    for limit in (0, 1, 10**6, 10**9, *gaps[:3]):
        assert int(sample.below(limit).sum()) == sum(gap <= limit for gap in gaps)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=30))
def test_the_window_is_the_longest_span_near_the_peak(spans: list[tuple[int, int]]) -> None:
    start = np.array([at for at, _ in spans])
    end = np.array([at + took for at, took in spans])
    level = [int(np.sum((start <= t) & (t < end))) for t in range(95)]
    found = longest_span(start, end)
    if max(level) == 0:
        assert found is None
        return
    best, run = 0, 0
    for one in level:
        run = run + 1 if one >= 0.9 * max(level) else 0
        best = max(best, run)
    assert found is not None
    assert found.peak == max(level)
    assert found.end - found.start == best
    assert all(one >= 0.9 * found.peak for one in level[found.start : found.end])


@given(st.integers(0, 10**6), st.integers(2, 80))
@settings(max_examples=25, deadline=None)
def test_the_same_tables_give_the_same_summary_in_any_order(seed: int, n: int) -> None:
    rows, steps = toy_run(n, seed, concurrency=4)
    spec = dataclasses.replace(SPEC, slo={"ttft_s": 0.02})
    made = summarise(table_of(REQUESTS, rows), table_of(STEPS, steps), spec, True)
    mixed = [rows[k] for k in np.random.default_rng(seed).permutation(n)]
    assert summarise(table_of(REQUESTS, mixed), table_of(STEPS, steps), spec, True) == made
    metrics = made["metrics"]
    tokens = sum(one["output_tokens"] for one in rows)
    span = max(one["last_token_s"] for one in rows) - min(one["sent_s"] for one in rows)
    assert metrics["output_throughput"]["value"] == pytest.approx(tokens / span)
    assert metrics["goodput"]["value"] <= metrics["request_throughput"]["value"] * (1 + 1e-12)
    assert metrics["itl_s"]["count"] == tokens - n
    for values in metrics.values():
        if values["low"] is not None:
            middle = values.get("value", values.get("mean"))
            assert values["low"] <= middle * (1 + 1e-12)
            assert middle <= values["high"] * (1 + 1e-12)


def test_throughput_of_work_done_at_an_even_pace_is_sure() -> None:
    rows = [request(n, at=n * 0.1, first_token_s=n * 0.1 + 0.05, last_token_s=n * 0.1 + 0.1) for n in range(400)]
    rate = measure(table_of(REQUESTS, rows), None, SPEC, False).rates["request_throughput"]
    assert rate is not None
    interval = rate.interval()
    assert interval is not None
    assert rate.value == pytest.approx(10)
    assert interval[1] / interval[0] < 1.02


def autoregressive(rng: np.random.Generator, n: int, memory: float) -> Any:
    noise = rng.normal(0, math.sqrt(1 - memory**2), n)
    out = np.empty(n)
    out[0] = rng.normal()
    for k in range(1, n):
        out[k] = memory * out[k - 1] + noise[k]
    return out


@pytest.mark.parametrize(("n", "memory", "least"), [(40, 0.0, 0.90), (400, 0.0, 0.90), (1000, 0.8, 0.85)])
def test_intervals_of_a_mean_hold_what_they_promise(n: int, memory: float, least: float) -> None:
    held = 0
    for trial in range(200):
        series = 10 + autoregressive(np.random.default_rng([trial, n]), n, memory)
        estimate = ratio_of_sums(np.arange(n), series, np.ones(n))
        interval = estimate.interval()
        assert interval is not None
        held += interval[0] <= 10 <= interval[1]
    assert held / 200 >= least
    assert held / 200 <= 0.995


@pytest.mark.parametrize("percent", [50, 90])
def test_intervals_of_a_percentile_hold_what_they_promise(percent: int) -> None:
    true = float(-np.log(1 - percent / 100))
    held = 0
    for trial in range(200):
        values = np.rint(np.random.default_rng([trial, percent]).exponential(1, 500) * SECOND).astype(np.int64)
        estimate = Sample.of(np.arange(500), values).percentile(percent)
        assert estimate is not None
        interval = estimate.interval()
        assert interval is not None
        held += interval[0] <= true <= interval[1]
    assert held / 200 >= 0.88


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_a_ratio_hold_what_they_promise(paired: bool) -> None:
    held, width = 0, 0.0
    for trial in range(200):
        rng = np.random.default_rng([trial, 7])
        common = rng.gamma(4, 1, 300)
        a = common * rng.gamma(50, 1 / 50, 300)
        b = 1.1 * (common if paired else rng.gamma(4, 1, 300)) * rng.gamma(50, 1 / 50, 300)
        units, ones = np.arange(300), np.ones(300)
        ratio = within_run_ratio(ratio_of_sums(units, a, ones), ratio_of_sums(units, b, ones), paired)
        assert ratio is not None
        held += ratio.low <= 1.1 <= ratio.high
        width += (ratio.high - ratio.low) / 200
    assert held / 200 >= 0.90
    assert width < (0.06 if paired else 0.25)


def test_intervals_over_repeats_hold_what_they_promise() -> None:
    held = 0
    for trial in range(200):
        rng = np.random.default_rng([trial, 8])
        base = rng.gamma(20, 1, 5)
        pairs = [(float(one), float(one * 1.1 * math.exp(rng.normal(0, 0.05)))) for one in base]
        ratio = repeats_ratio(pairs)
        assert ratio is not None
        held += ratio.low <= 1.1 <= ratio.high
        assert (ratio.p < 0.05) == (not ratio.low <= 1 <= ratio.high)
    assert 0.90 <= held / 200 <= 0.995


@given(st.integers(10, 500), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_the_closed_form_is_the_bootstrap_with_every_block(n: int, seed: int) -> None:
    series = np.random.default_rng(seed).normal(0, 1, n)
    series -= series.mean()
    length = block_length(series)
    assert 1 <= length <= max(1, n // 10)
    twice = np.concatenate((series, series))
    means = [twice[start : start + length].mean() for start in range(n)]
    blocks = n / length
    expected = np.mean(np.square(means)) / blocks * (blocks / (blocks - 1))
    variance, freedom = mean_variance(series)
    assert variance == pytest.approx(expected)
    assert freedom == pytest.approx(blocks - 1)


def test_correlation_lengthens_the_blocks() -> None:
    rng = np.random.default_rng(3)
    assert block_length(autoregressive(rng, 2000, 0.9)) > 5 * block_length(autoregressive(rng, 2000, 0.0))
    assert block_length(np.zeros(100)) == 1


def test_a_long_series_is_grouped_without_changing_the_answer_much() -> None:
    series = np.random.default_rng(4).normal(0, 1, 100_003)
    series -= series.mean()
    variance, freedom = mean_variance(series)
    assert variance == pytest.approx(1 / len(series), rel=0.15)
    assert freedom > 1000
