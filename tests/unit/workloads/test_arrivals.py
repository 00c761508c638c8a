import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.places import ROOT
from workloads.catalog import load_workload
from workloads.core.arrivals import Closed, Constant, FromTrace, Gamma, Offline, Phases, Poisson, Ramp, parse_arrival
from workloads.core.errors import WorkloadError
from workloads.core.stream import ramp_times, schedule
from workloads.core.trace import Floats, Trace


def trace_of(n: int, timestamp_s: Any = None) -> Trace:
    stamps = None if timestamp_s is None else np.array(timestamp_s, np.float64)
    return Trace("t", np.ones(n, np.int64), np.ones(n, np.int64), timestamp_s=stamps)


def due_s(text: str, n: int, seed: int = 0, rate: float | None = None) -> Floats:
    due_ns = schedule(parse_arrival(text, rate=rate), trace_of(n), seed).due_ns
    assert due_ns is not None
    return due_ns / 1e9


def test_forms() -> None:
    assert parse_arrival("", concurrency=2048) == Closed(2048)
    assert parse_arrival("closed:concurrency=2048") == parse_arrival("closed", concurrency=2048) == Closed(2048)
    assert parse_arrival("", rate=20) == parse_arrival("poisson", rate=20) == Poisson(20.0)
    assert parse_arrival("constant", rate=0.5) == Constant(0.5)
    assert parse_arrival("gamma:cv=2", rate=3) == parse_arrival("gamma:burstiness=0.25", rate=3) == Gamma(3.0, 2.0)
    assert parse_arrival("trace") == FromTrace(1.0)
    assert parse_arrival("trace:scale=0.5") == FromTrace(0.5)
    assert parse_arrival("ramp:from=1,to=50,seconds=60") == Ramp(1.0, 50.0, 60.0)
    assert parse_arrival("phases:rates=5/50/5,seconds=60/30/60") == Phases((5.0, 50.0, 5.0), (60.0, 30.0, 60.0))


def test_offline_everything_is_due_at_once() -> None:
    arrival = parse_arrival("offline")
    assert arrival == Offline()
    assert arrival.canonical == "offline"
    assert due_s("offline", 4, seed=3).tolist() == [0, 0, 0, 0]
    assert schedule(arrival, trace_of(4), 0).concurrency is None
    with pytest.raises(WorkloadError, match="takes no rate"):
        parse_arrival("offline", rate=5.0)
    with pytest.raises(WorkloadError, match="takes no concurrency"):
        parse_arrival("offline", concurrency=5)


def test_canonical_text() -> None:
    assert parse_arrival("poisson", rate=20).canonical == "poisson:rate=20.0"
    assert parse_arrival("", concurrency=8).canonical == "closed:concurrency=8"
    assert parse_arrival("gamma:burstiness=4", rate=2).canonical == "gamma:cv=0.5,rate=2.0"
    assert parse_arrival("ramp:from=1,to=2,seconds=3").canonical == "ramp:from=1.0,seconds=3.0,to=2.0"
    assert parse_arrival("phases:rates=1/2,seconds=3/4").canonical == "phases:rates=1.0/2.0,seconds=3.0/4.0"


def test_a_closed_loop_has_no_due_times() -> None:
    stream = schedule(Closed(7), trace_of(3), 0)
    assert stream.due_ns is None
    assert stream.concurrency == 7
    assert schedule(Poisson(1.0), trace_of(3), 0).concurrency is None


def test_constant_gaps_do_not_drift() -> None:
    due = schedule(Constant(3.0), trace_of(3_000_000), 0).due_ns
    assert due is not None
    assert due[:3].tolist() == [333_333_333, 666_666_667, 1_000_000_000]
    assert due[-1] == 10**15


@pytest.mark.parametrize(
    ("text", "cv"),
    [("poisson", 1.0), ("gamma:cv=1", 1.0), ("gamma:cv=2", 2.0), ("gamma:burstiness=4", 0.5), ("constant", 0.0)],
)
def test_gaps_have_their_mean_and_variation(text: str, cv: float) -> None:
    n = 200_000
    gaps = np.diff(due_s(text, n, rate=25), prepend=0.0)
    assert gaps.mean() == pytest.approx(1 / 25, rel=5 * cv / math.sqrt(n) + 1e-7)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.02, abs=1e-6)
    assert (gaps > 0).mean() > 0.99


def test_a_poisson_process_starts_with_a_gap_and_its_end_is_not_pinned() -> None:
    n, rate, seeds = 50, 4.0, 4000
    due = np.array([due_s("poisson", n, seed, rate) for seed in range(seeds)])
    assert due[:, 0].mean() == pytest.approx(1 / rate, rel=0.07)
    assert due[:, -1].mean() == pytest.approx(n / rate, rel=0.01)
    assert due[:, -1].var() == pytest.approx(n / rate**2, rel=0.1)


def test_poisson_counts_are_poisson() -> None:
    counts = np.bincount(due_s("poisson", 100_000, rate=10).astype(int))[:-1]
    assert counts.mean() == pytest.approx(10, rel=0.02)
    assert counts.var() == pytest.approx(10, rel=0.05)


def test_a_ramps_rate_grows_along_its_line() -> None:
    due = due_s("ramp:from=0,to=100,seconds=100", 15_000)
    inside = due[due < 100]
    assert len(inside) == pytest.approx(5000, abs=5 * math.sqrt(5000))
    assert (inside < 50).mean() == pytest.approx(0.25, abs=0.03)
    after = due[due >= 100]
    assert len(after) / (after[-1] - 100) == pytest.approx(100, rel=0.05)
    falling = due_s("ramp:from=100,to=1,seconds=10", 505)
    assert (falling < 5).sum() > 300


def test_phases_keep_their_rates_and_the_last_goes_on() -> None:
    due = due_s("phases:rates=5/0/50/5,seconds=100/50/100/1", 6500)
    assert (due < 100).sum() == pytest.approx(500, abs=5 * math.sqrt(500))
    assert ((due >= 100) & (due < 150)).sum() == 0
    assert ((due >= 150) & (due < 250)).sum() == pytest.approx(5000, abs=5 * math.sqrt(5000))
    tail = due[due >= 251]
    assert len(tail) / (tail[-1] - 251) == pytest.approx(5, rel=0.15)
    assert due_s("phases:rates=0/5,seconds=10/1", 5)[0] >= 10


def test_a_traces_own_times_are_scaled_and_rounded_once() -> None:
    trace = trace_of(3, [0, 0.1, 1 / 3])
    assert schedule(FromTrace(1.0), trace, 0).due_ns.tolist() == [0, 100_000_000, 333_333_333]  # type: ignore[union-attr]
    assert schedule(FromTrace(0.5), trace, 9).due_ns.tolist() == [0, 50_000_000, 166_666_667]  # type: ignore[union-attr]


def test_a_trace_without_times_cannot_set_them(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="t: the trace has no timestamps: give --rate"):
        schedule(FromTrace(1.0), trace_of(3), 0)
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt_tokens": 1, "output_tokens": 1, "timestamp_s": 0}\n')
    repeated = load_workload("file", {"path": str(path)}, requests=2, seed=0, model="")
    with pytest.raises(WorkloadError, match=r"no timestamps \(2 requests repeat the trace of 1 rows 2 times\)"):
        schedule(FromTrace(1.0), repeated, 0)


def test_arrivals_do_not_share_a_stream_with_lengths() -> None:
    lengths = load_workload("synthetic", {"law": "geometric"}, requests=2000, seed=5, model="").output_tokens
    gaps = np.diff(due_s("poisson", 2000, 5, 1.0), prepend=0.0)
    assert abs(np.corrcoef(lengths, gaps)[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("text", "rate", "concurrency", "told"),
    [
        ("", 5, 6, "give a rate (open loop) or a concurrency (closed loop), not both"),
        ("", None, None, "closed needs a concurrency of 1 or more"),
        ("", None, 0, "closed needs a concurrency of 1 or more"),
        ("poison", 5, None, "unknown arrival 'poison' (did you mean poisson?): known are closed, poisson,"),
        ("zzz", None, None, "unknown arrival 'zzz': known are"),
        ("poisson", None, None, "arrival poisson needs a rate in requests per second"),
        ("poisson", 0, None, "rate is 0; it must be above 0"),
        ("constant", -1, None, "rate is -1; it must be above 0"),
        ("poisson", math.nan, None, "rate=nan is not finite"),
        ("poisson", math.inf, None, "no rate is endless"),
        ("poisson:rate=x", None, None, "rate=x is not a number"),
        ("poisson:rate=3", 3, None, "rate is given twice"),
        ("poisson", None, 3, "arrival poisson takes no concurrency"),
        ("closed", 3, None, "arrival closed takes no rate"),
        ("trace", 3, None, "arrival trace takes no rate"),
        ("ramp:from=1,to=2,seconds=3", 3, None, "takes no rate"),
        ("gamma", 5, None, "give one of cv=… and burstiness=…"),
        ("gamma:cv=1,burstiness=1", 5, None, "give one of cv=… and burstiness=…"),
        ("gamma:cv=0", 5, None, "cv is 0; it must be above 0"),
        ("gamma:cv=1e200", 5, None, "cv is 1e+200; it must be 0.001 to 1000"),
        ("gamma:burstiness=1e200", 5, None, "cv is 1e-100; it must be 0.001 to 1000"),
        ("gamma:cv=nan", 5, None, "cv=nan is not finite"),
        ("gamma:burstiness=-1", 5, None, "burstiness is -1; it must be above 0"),
        ("gamma:vc=2", 5, None, "arrival gamma has no option 'vc' (did you mean cv?)"),
        ("trace:scale=0", None, None, "scale is 0; it must be above 0"),
        ("ramp:from=1,to=2", None, None, "arrival ramp needs seconds=…"),
        ("ramp:from=-1,to=2,seconds=3", None, None, "from=-1 is below 0"),
        ("ramp:from=1,to=0,seconds=3", None, None, "to is 0; it must be above 0"),
        ("phases:rates=1/2,seconds=3", None, None, "2 rates and 1 seconds"),
        ("phases:rates=1/x,seconds=3/4", None, None, "rates=1/x is not a list such as 5/50/5"),
        ("phases:rates=1/-2,seconds=3/4", None, None, "rates=1/-2 has a value that is negative or not finite"),
        ("phases:rates=1/0,seconds=3/4", None, None, "the last rate, which goes on, is 0"),
        ("phases:rates=1/2,seconds=0/4", None, None, "the length of a phase is 0"),
    ],
)
def test_bad_arrivals(text: str, rate: float | None, concurrency: int | None, told: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(told)) as caught:
        parse_arrival(text, rate=rate, concurrency=concurrency)
    assert "\n" not in str(caught.value)


def test_a_schedule_of_centuries_is_refused() -> None:
    with pytest.raises(WorkloadError, match="raise the rate"):
        schedule(Poisson(1e-12), trace_of(3), 0)
    with pytest.raises(WorkloadError, match="raise the rate"):
        schedule(Ramp(0.0, 5e-324, 1.0), trace_of(3), 0)


def test_a_ramp_to_almost_nothing_stays_exact() -> None:
    times = ramp_times(np.array([0.0, 1.0, 5e5, 1e6]), Ramp(1e5, 1e-9, 20.0))
    assert times == pytest.approx([0.0, 1e-5, 20 * (1 - math.sqrt(0.5)), 20.0], rel=1e-5)
    assert ramp_times(np.array([0.0]), Ramp(0.0, 1.0, 1.0)).tolist() == [0.0]


GOLDEN = {
    "poisson:rate=20.0": "e929df3f29fe73fc433d73ab978ef359352bb09e27bc73714c627ef604d737a2",
    "constant:rate=20.0": "2343d3750d90518631b459cd64f8d84b5c9f6ddea413f0623219be75edf1b977",
    "gamma:cv=2.0,rate=20.0": "ced038b5d00a9b83ad01ec865a8877507d9bd194e53ca64b599541fd574c269e",
    "ramp:from=1.0,seconds=60.0,to=50.0": "d7db058e2418df286cae105d70eb18372feb390cd11bcb34af5a072c81604229",
    "phases:rates=5.0/50.0,seconds=60.0/30.0": "d04862b5465b7aa2275f6c55a5961340e68991e9caa4ff9e24f59bcf0d34d18e",
    "closed:concurrency=2048": "e8b39e84c220f9fc98f10f7efbd3b2784fd529070f8708f3024d355252e45994",
}


@pytest.mark.parametrize("hash_seed", ["0", "424242"])
def test_digests_are_the_same_in_every_process(hash_seed: str) -> None:
    code = (
        "import json; from workloads.catalog import load_workload; "
        "from workloads.core.arrivals import parse_arrival; from workloads.core.stream import schedule; "
        "trace = load_workload('sharegpt', {}, requests=4000, seed=7, model=''); "
        f"print(json.dumps({{a: schedule(parse_arrival(a), trace, 7).digest for a in {list(GOLDEN)!r}}}))"
    )
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == GOLDEN
