"""Names and what stands behind them: each metric by its name is the quantity that its definition says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.core.records import REQUESTS, STEPS
from harness.measure.columns import Requests
from harness.measure.fairness import COLUMNS, DECODE, KV, alpha_of_policy, estimates, fairness
from harness.measure.metrics import METRICS
from harness.measure.window import steady_window
from tests.support.runfactory import request, table_of
from tests.support.schedules import Schedule

# Steps of unequal lengths, requests of unequal lengths: no two variants of a metric agree.
SCHEDULE = Schedule(
    starts=[0, 0, 1, 3, 3, 5] * 4,
    lengths=[3, 7, 5, 11, 2, 9] * 4,
    prompts=[10, 3, 40, 7, 25, 1] * 4,
    durations=[1_000_000 * (1 + place**2) for place in range(14)],
)
ALPHA = {DECODE: 3.0, KV: 20.0}


@pytest.mark.parametrize("variant", COLUMNS)
def test_every_fairness_metric_is_its_definition_over_the_steps(variant: str) -> None:
    kv = variant == KV
    table = table_of(STEPS, SCHEDULE.steps())
    state = fairness(table, variant)
    assert state is not None
    values = {name: found.value for name, found in estimates(table, variant, state, ALPHA[variant], 0.0).items()}
    steps = [(SCHEDULE.counts(t, kv), SCHEDULE.durations[t]) for t in range(SCHEDULE.end)]
    busy = [(max(r) - min(r), len(r), sum(r), max(r), ns) for r, ns in steps if r]
    gaps = np.array([gap for gap, *_ in busy], dtype=np.float64)
    seconds = np.array([ns for *_, ns in busy], dtype=np.float64) / 1e9
    charged = np.array([n * top - held for _, n, held, top, _ in busy], dtype=np.float64)
    over = np.maximum(gaps - ALPHA[variant], 0)
    expected = {
        "gap_mean": gaps.mean(),
        "gap_max": gaps.max(),
        "violation_share": (gaps > ALPHA[variant]).mean(),
        "excess_mean": over.mean(),
        "externality": charged.sum(),
        "externality_per_token": charged.sum() / sum(n for _, n, *_ in busy),
        "gap_mean_time": (gaps * seconds).sum() / seconds.sum(),
        "violation_share_time": seconds[gaps > ALPHA[variant]].sum() / seconds.sum(),
        "excess_mean_time": (over * seconds).sum() / seconds.sum(),
        "externality_time": (charged * seconds).sum(),
    }
    for name, value in expected.items():
        assert values[f"{name}{variant}"] == pytest.approx(value, rel=1e-12), name
    assert len({round(value, 9) for value in expected.values()}) == len(expected)
    if variant == DECODE:
        assert values["busy_steps"] == len(busy)
        assert values["makespan_steps"] == SCHEDULE.end


def test_intervals_of_gaps_widen_around_their_own_values() -> None:
    schedule = dataclasses.replace(
        SCHEDULE,
        starts=[5 * (place // 6) for place in range(240)],
        lengths=[1 + (place * 7) % 23 for place in range(240)],
        prompts=[place % 9 for place in range(240)],
        durations=[1_000_000] * 300,
    )
    table = table_of(STEPS, schedule.steps())
    state = fairness(table, DECODE)
    assert state is not None
    found = estimates(table, DECODE, state, ALPHA[DECODE], 0.0)
    for name in ("gap_mean", "violation_share", "excess_mean", "externality_per_token"):
        interval = found[f"{name}{DECODE}"].interval()
        assert interval is not None, name
        assert interval[0] < found[f"{name}{DECODE}"].value < interval[1], name


def test_no_two_metrics_share_a_label_or_a_formula_and_unit() -> None:
    labels = [metric.label for metric in METRICS.values()]
    assert len(set(labels)) == len(labels)


def test_a_policys_alpha_bounds_what_its_footprint_counts() -> None:
    assert alpha_of_policy("isjl:alpha=100", DECODE) == 100
    assert alpha_of_policy("isjl:alpha=100", KV) is None
    assert alpha_of_policy("isjl:alpha=100,footprint=kv", KV) == 100
    assert alpha_of_policy("isjl:alpha=100,footprint=kv", DECODE) is None


def test_a_request_without_an_end_stays_to_the_end_of_the_run() -> None:
    rows = [request(row, at=0.0, last_token_s=4.0, done_s=4.0) for row in range(10)]
    rows += [request(10, at=0.0, first_token_s=None, last_token_s=None, done_s=None, finish="interrupted")]
    rows += [request(11, at=0.0, last_token_s=9.0, done_s=9.0)]
    window = steady_window(Requests.of(table_of(REQUESTS, rows)), closed_loop=True)
    assert window is not None
    # Twelve in flight until 4 s; the one without an end is one of them for all of that time.
    assert (window.start, window.end, window.peak) == (0, 4_000_000_000, 12)
    lone = [request(0, at=0.0, last_token_s=2.0, done_s=2.0)]
    lone += [request(1, at=0.0, first_token_s=None, last_token_s=None, done_s=None, finish="interrupted")]
    lone += [request(2, at=2.0, last_token_s=6.0, done_s=6.0)]
    window = steady_window(Requests.of(table_of(REQUESTS, lone)), closed_loop=True)
    assert window is not None
    assert (window.start, window.end, window.peak) == (0, 6_000_000_000, 2)
