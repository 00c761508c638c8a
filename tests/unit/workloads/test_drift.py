"""Drifts: the published ones to the token, marks where phases begin, and arrivals that change on the way."""

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.session.grid import arrival_of, requests_of
from workloads.catalog import CATALOG, canonical_workload, load_workload
from workloads.core import options
from workloads.core.arrivals import Closed, ClosedPhases, FromTrace, parse_arrival
from workloads.core.errors import WorkloadError
from workloads.core.stream import own_arrival, schedule
from workloads.core.trace import Trace
from workloads.lengths.drift import whole_numbers
from workloads.lengths.filters import select

DRIFTS = sorted(name for name in CATALOG if name.startswith("drift:"))


def load(text: str, requests: int | None = None, seed: int = 0) -> Trace:
    name, given = options.split(text)
    return load_workload(name, given, requests=requests, seed=seed, model="Qwen/Qwen3-8B")


def test_the_published_shift_of_lengths_is_theirs_to_the_token() -> None:
    trace = load("drift:distribution")
    # Recomputed from the published generator (reference/workloads.json, exact_check).
    assert int(trace.output_tokens.sum()) == 3_320_624
    by_phase = {mu_l: int(trace.output_tokens[trace.prompt_tokens == mu_l].sum()) for mu_l in (1024, 512, 128)}
    assert by_phase == {1024: 254_646, 512: 1_025_286, 128: 2_040_692}
    assert [mark["first_row"] for mark in trace.source["phases"]] == [0, 2000, 4000]
    assert trace.prompt_tokens[[0, 1999, 2000, 3999, 4000, 5999]].tolist() == [1024, 1024, 512, 512, 128, 128]


def test_paper_order_is_the_same_requests_without_a_shift_and_says_so() -> None:
    drift, mixed = load("drift:distribution"), load("drift:distribution,order=paper")
    assert sorted(mixed.output_tokens.tolist()) == sorted(drift.output_tokens.tolist())
    means = [float(part.mean()) for part in np.split(mixed.prompt_tokens, 3)]
    assert max(means) / min(means) < 1.1
    assert len(mixed.source["phases"]) == 1
    assert mixed.label == "drift:distribution (paper order)"
    assert mixed.source["workload"] == "drift:distribution,order=paper"
    assert "mixture without a shift" in mixed.source["notes"][0]


SCHEDULES = {
    "paper": ([32, 512, 1024, 256, 2048], [1000, 3000, 3000, 2000, 4000]),
    "script": ([32, 2048, 500], [500, 4000, 2000]),
    "log": ([32, 512, 1024, 256], [1000, 3000, 3000, 2000]),
    "early": ([32, 2048, 256], [1000, 3000, 2000]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_published_schedules_of_concurrency(name: str) -> None:
    levels, counts = SCHEDULES[name]
    trace = load(f"drift:concurrency-{name}")
    assert len(trace) == sum(counts)
    assert own_arrival(trace) == ClosedPhases(tuple(levels), tuple(counts), True)
    assert set(trace.prompt_tokens.tolist()) == {512}
    assert ("assumed" in trace.source) == (name == "paper")


def test_published_schedules_in_the_order_of_the_authors_logs() -> None:
    # The logs' totals, exact: 1,000 of 3,000 shuffled, all 3,000, and the 4,000 of the run apart.
    output = load("drift:concurrency-log,order=paper").output_tokens
    assert int(output[:1000].sum()) == 254_703
    assert int(output[1000:4000].sum()) == 767_975
    assert int(load("drift:concurrency-paper,order=paper").output_tokens[9000:].sum()) == 1_025_782


@pytest.mark.parametrize("name", DRIFTS)
def test_every_drift_is_a_hashed_trace_with_marks(name: str) -> None:
    trace = load(name)
    assert trace.digest == load(name).digest
    assert trace.digest != load(name, seed=1).digest
    marks = trace.source["phases"]
    firsts = [mark["first_row"] for mark in marks]
    assert firsts[0] == 0
    assert firsts == sorted(set(firsts))
    assert firsts[-1] < len(trace)
    assert all(mark["name"] for mark in marks)
    assert json.loads(json.dumps(trace.source)) == trace.source
    assert requests_of(trace) == len(trace)
    assert load(name, 401).prompt_tokens.shape == (401,)
    if trace.timestamp_s is not None:
        for mark in marks[1:]:
            assert trace.timestamp_s[mark["first_row"] - 1] < mark["start_s"] <= trace.timestamp_s[mark["first_row"]]


def test_fewer_requests_keep_every_phase() -> None:
    assert [mark["first_row"] for mark in load("drift:distribution", 601).source["phases"]] == [0, 200, 400]
    assert own_arrival(load("drift:concurrency-script", 650)) == ClosedPhases((32, 2048, 500), (50, 400, 200), True)
    with pytest.raises(WorkloadError, match="2 requests asked for leave a phase of 3 empty: give 3 or more"):
        load("drift:distribution", 2)


def test_rates_change_as_asked() -> None:
    ramp = load("drift:ramp,from=0,to=20,seconds=100")
    assert len(ramp) == 1000
    assert ramp.timestamp_s is not None
    # Λ(t) = t²/10, so half the time has a quarter of the requests.
    assert int((ramp.timestamp_s < 50).sum()) == pytest.approx(250, abs=60)
    day = load("drift:diurnal,low=1,high=19,period=200,cycles=1")
    assert day.timestamp_s is not None
    quarters = np.histogram(day.timestamp_s, bins=[0, 50, 100, 150, 200])[0]
    assert quarters[0] < quarters[1]
    assert quarters[3] < quarters[2]
    bursts = load("drift:bursts,base=2,peak=100,every=50,seconds=10,count=3")
    assert [mark["name"] for mark in bursts.source["phases"]][:3] == ["base 1", "burst 1", "base 2"]
    burst = bursts.source["phases"][1]["first_row"], bursts.source["phases"][2]["first_row"]
    assert burst[1] - burst[0] == pytest.approx(1000, rel=0.15)
    assert own_arrival(bursts) == FromTrace(1.0)
    assert schedule(FromTrace(1.0), bursts, 0).due_ns is not None


def test_bursts_go_on_where_more_is_asked_for() -> None:
    trace = load("drift:bursts,base=10,peak=100,every=10,seconds=2,count=1", 1000)
    assert trace.timestamp_s is not None
    # 280 requests an interval of 10 s.
    assert float(trace.timestamp_s[-1]) == pytest.approx(1000 / 28, rel=0.15)


def test_rate_drifts_take_the_lengths_of_a_data_set() -> None:
    trace = load("drift:ramp,lengths=sharegpt,seconds=60")
    np.testing.assert_array_equal(trace.output_tokens, load("sharegpt", len(trace)).output_tokens)
    assert "twin" in load("drift:ramp,lengths=wildchat,seconds=60").source["notes"][0]
    with pytest.raises(WorkloadError, match="give a data set's name"):
        load("drift:ramp,lengths=file")


def test_shapes_of_the_hazard_have_one_mean() -> None:
    trace = load("drift:hazard,rows=20000,mu_o=200")
    geometric, increasing, forced = np.split(trace.output_tokens, 3)
    for part in (geometric, increasing, forced):
        assert float(part.mean()) == pytest.approx(200, rel=0.02)
    assert float(geometric.std()) == pytest.approx(200, rel=0.03)
    # A Rayleigh law: its spread is its mean times √(4/π − 1).
    assert float(increasing.std()) == pytest.approx(200 * np.sqrt(4 / np.pi - 1), rel=0.03)
    assert set(forced.tolist()) == {200}


def test_a_mixture_goes_from_one_kind_to_the_other() -> None:
    first, *_, last = np.split(load("drift:mixture").prompt_tokens, 10)
    assert float((first > 500).mean()) > 0.9
    assert float((last < 500).mean()) > 0.9
    still = load("drift:mixture,from=0.5,to=0.5").prompt_tokens
    assert float((still > 500).mean()) == pytest.approx(0.5, abs=0.03)


def test_names_and_options() -> None:
    assert canonical_workload("drift", {"path": "distribution"}) == "drift:distribution"
    text = canonical_workload("drift", {"path": "ramp", "to": "5", "seconds": "60"})
    assert text == "drift:ramp,seconds=60.0,to=5.0"
    assert canonical_workload(*options.split(text)) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("drift", "drift needs a name: write drift:NAME,option=…; known are distribution, concurrency-paper,"),
        ("drift:distributoin", "no drift 'distributoin' (did you mean distribution?)"),
        ("drift:distribution,rows=3", "drift:distribution has no option 'rows'"),
        ("drift:lengths,mu_l=1/2", "one value a phase in each list; there are 2 in mu_l, 3 in mu_o, 3 in rows"),
        ("drift:lengths,rows=1/x/3", "rows=1/x/3 is no list of whole numbers of at least 1"),
        ("drift:lengths,jitter=1.5", "drift:lengths: jitter=1.5 is above 1"),
        ("drift:hazard,shapes=flat", "drift:hazard: no shape flat: known are geometric, increasing, forced"),
        ("drift:mixture,to=2", "are shares of b: 0 to 1"),
        ("drift:mixture,a=5", "a=5 is not mean input/mean output"),
        ("drift:ramp,to=0", "to=0 must be above 0"),
        ("drift:ramp,seconds=0", "it lasts 0 s"),
        ("drift:ramp,from=0,to=1e-3,seconds=1", "0 requests: choose rates and times"),
        ("drift:diurnal,low=5,high=2", "low=5 is above high=2: swap them"),
        ("drift:bursts,seconds=500", "seconds=500 must be above 0 and below every=120"),
    ],
)
def test_what_a_user_can_mend(text: str, told: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(told)) as caught:
        load(text)
    assert str(caught.value).isprintable()


def test_a_drift_brings_its_arrival_and_takes_no_other() -> None:
    levels, ramp, plain = load("drift:concurrency-log"), load("drift:ramp"), load("synthetic", 10)
    assert arrival_of(levels, "") == own_arrival(levels)
    assert arrival_of(ramp, "") == FromTrace(1.0)
    assert arrival_of(ramp, "trace:scale=0.5") == FromTrace(0.5)
    assert arrival_of(load("drift:distribution"), "") == arrival_of(plain, "") == Closed(2048)
    assert arrival_of(plain, "closed:concurrency=3") == Closed(3)
    for trace, asked in ((levels, "closed:concurrency=3"), (ramp, "poisson:rate=3")):
        with pytest.raises(UserError, match="of its own: leave out --arrival"):
            arrival_of(trace, asked)


def test_marks_move_with_the_window() -> None:
    trace = load("drift:distribution", 600)
    window = select(trace, 300, 1)
    assert window.source["window"]["start"] == 300
    assert [(mark["name"], mark["first_row"]) for mark in window.source["phases"]] == [
        ("512 in, 512 out", 0),
        ("128 in, 1024 out", 100),
    ]
    assert "phases" not in select(trace, 600, 0, "shuffled").source
    late = load("drift:bursts").take(np.arange(1000, 3000))
    assert [mark["start_s"] for mark in late.source["phases"]] == [None] * len(late.source["phases"])


def test_closed_phases_as_text() -> None:
    arrival = parse_arrival("closed-phases:concurrency=32/512,requests=5/10")
    assert arrival == ClosedPhases((32, 512), (5, 10), True)
    assert arrival.canonical == "closed-phases:concurrency=32/512,drain=true,requests=5/10"
    assert parse_arrival(arrival.canonical) == arrival
    stream = schedule(arrival, load("synthetic", 20), 0)
    assert stream.levels == ((0, 32), (5, 512))
    assert (stream.concurrency, stream.drain, stream.due_ns) == (512, True, None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("concurrency=1/x,requests=1/2", "concurrency=1/x is no list of whole numbers"),
        ("concurrency=1/0,requests=1/2", "concurrency=1/0: each must be 1 to"),
        ("concurrency=1,requests=1/2", "1 levels of concurrency and 2 numbers of requests"),
    ],
)
def test_closed_phases_that_cannot_be(text: str, told: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(told)):
        parse_arrival(f"closed-phases:{text}")
    with pytest.raises(WorkloadError, match="takes no concurrency"):
        parse_arrival("closed-phases:concurrency=1/2,requests=1/2", concurrency=7)


def test_a_phase_that_would_never_begin_is_refused() -> None:
    trace = load("synthetic", 20)
    with pytest.raises(WorkloadError, match="the last phase begins after 20 requests, and the trace has 20"):
        schedule(ClosedPhases((1, 2), (20, 5), True), trace, 0)


def test_take_keeps_the_traces_own_source() -> None:
    trace: Any = dataclasses.replace(load("synthetic", 5), source={"kind": "file"})
    assert trace.take(np.array([4, 0])).source == {"kind": "file"}


@pytest.mark.parametrize("text", ["512/-1", "-1/512", "512/0", "0/512", "512/x", "", "512/1.5"])
def test_one_number_of_a_list_that_is_off_is_enough(text: str) -> None:
    with pytest.raises(WorkloadError, match="no list of whole numbers of at least 1"):
        whole_numbers("lengths", "mu_l", text)
