"""What `bench trace` says of a workload: arrivals, hazard, phases, theory, and the page."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.profiles.pair import load_pair
from harness.trace.info import trace_info
from harness.trace.plot import length_shares, marks_at, over_time, plot_trace
from harness.trace.stats import arrivals_of, duplicates_of, hazard_of, phases_of, sharing_of
from harness.trace.theory import Setting, predict, wins_from
from policies.online.threshold import crossover
from workloads.catalog import load_workload
from workloads.core import options
from workloads.core.blocks import Blocks
from workloads.core.trace import Trace

PAIR = load_pair("h200", "Qwen/Qwen3-8B")


def load(text: str, requests: int | None = None) -> Trace:
    name, given = options.split(text)
    return load_workload(name, given, requests=requests, seed=0, model="Qwen/Qwen3-8B")


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def test_a_memoryless_length_has_a_flat_hazard() -> None:
    outputs = load("synthetic:law=geometric,mu_o=200", 50_000).output_tokens
    found = hazard_of(outputs)
    assert found.p_bar == pytest.approx(len(outputs) / int(outputs.sum()))
    assert found.p0 == pytest.approx(1 / 200, rel=0.03)
    assert found.eta * 200 < 0.05 * found.p0
    assert float(np.abs(found.rates * 200 - 1).max()) < 0.2


def test_an_increasing_hazard_has_its_slope() -> None:
    outputs = load("drift:hazard,shapes=increasing,mu_o=200,rows=50000").output_tokens
    found = hazard_of(outputs)
    assert found.eta == pytest.approx(math.pi / (2 * 200**2), rel=0.1)
    slope, start = np.polyfit(found.ages, found.rates, 1)
    assert float(slope) == pytest.approx(found.eta, rel=0.1)
    assert abs(float(start)) < 0.002


def test_bins_of_the_hazard_count_every_completion_up_to_the_95th_percentile() -> None:
    outputs = ints(*([3] * 10 + [5] * 85 + [100] * 5))
    found = hazard_of(outputs)
    # At age 5 all that are left but five end: exposure 10·3 + 90·5 up to there.
    assert float(found.ages[-1]) <= 5
    assert (found.p0, found.eta) != (0.0, 0.0)
    forced = hazard_of(np.full(100, 50, np.int64))
    assert forced.p_bar == pytest.approx(1 / 50)
    assert math.isfinite(forced.eta)
    single = hazard_of(ints(1))
    assert single.p_bar == 1.0


def test_arrivals_by_hand() -> None:
    trace = Trace("t", ints(1, 1, 1, 1), ints(1, 1, 1, 1), timestamp_s=np.array([0.0, 1.0, 2.0, 6.0]))
    found = arrivals_of(trace)
    assert found is not None
    # Gaps 1, 1, 4: mean 2, standard deviation √2.
    assert found["rate"] == pytest.approx(0.5)
    assert found["cv"] == pytest.approx(math.sqrt(2) / 2)
    assert found["burstiness"] == pytest.approx(2.0)
    assert arrivals_of(Trace("t", ints(1), ints(1))) is None
    still = Trace("t", ints(1, 1), ints(1, 1), timestamp_s=np.zeros(2))
    assert arrivals_of(still) == {"rate": None, "cv": None, "burstiness": None}


def test_duplicates_and_shared_prefixes_by_hand() -> None:
    trace = Trace(
        "t",
        ints(600, 600, 1100),
        ints(1, 1, 1),
        timestamp_s=np.array([0.0, 0.0, 0.0]),
        blocks=Blocks(((1, 2), (1, 3), (1, 3, 4)), 512),
    )
    assert duplicates_of(trace) == 1
    shared = sharing_of(trace)
    # Whole blocks only: 1 in the second row, 1 in the third; block 3 was cut in the second, so it is not cached.
    assert shared == {"block_tokens": 512, "shared_tokens": 1024, "share": 1024 / 2300}


def test_phases_tell_their_means() -> None:
    first, *_ = phases_of(load("drift:distribution"))
    assert (first["name"], first["rows"], first["mu_l"]) == ("1024 in, 128 out", 2000, 1024.0)
    assert first["decode_ratio"] == pytest.approx(0.111, abs=0.001)


def test_theory_is_the_closed_forms() -> None:
    trace = load("synthetic:law=geometric,mu_l=512,mu_o=256", 20_000)
    told = predict(trace, PAIR, Setting(concurrency=512))
    costs = PAIR.policy_constants(told["mu_l"], told["mu_o"], 14336)
    theta = told["theta_0"]
    # Form 2 holds at θ0.
    assert theta / (1 - theta) + math.log1p(-theta) == pytest.approx(told["p_bar"] * costs.alpha_p_s / costs.alpha_d_s)
    assert told["k_star"] == max(1, int(told["theta_star"] * told["n_star"]))
    left, right = crossover(told["theta_star"], told["mu_l"], told["mu_o"], told["n_obs"], 0.0, costs)
    assert (told["crossover_left"], told["crossover_right"]) == (left, right)
    assert told["winner"] == ("MB" if left < right else "EB")
    # The sides meet at the number of running requests that is told.
    meets = told["eb_wins_from_n_obs"]
    left, right = crossover(told["theta_star"], told["mu_l"], told["mu_o"], meets, 0.0, costs)
    assert left == pytest.approx(right)


def test_light_load_is_for_mixed_batching_and_delta_moves_the_line() -> None:
    trace = load("synthetic", 4000)
    light = predict(trace, PAIR, Setting(concurrency=8))
    heavy = predict(trace, PAIR, Setting(concurrency=2048))
    assert (light["winner"], heavy["winner"]) == ("MB", "EB")
    assert light["eb_requests_per_s"] is None
    costs = PAIR.policy_constants(512, 256, 14336)
    plain, patient = (wins_from(0.3, 512, 256, delta, costs) for delta in (0.0, 1e-6))
    assert plain is not None
    assert patient is not None
    assert patient > plain
    assert wins_from(0.3, 512, 256, 1.0, costs) is None


def test_phases_are_judged_at_their_own_concurrency() -> None:
    told = predict(load("drift:concurrency-log"), PAIR, Setting(slots=2048, token_budget=18432))
    assert [phase["concurrency"] for phase in told["phases"]] == [32, 512, 1024, 256]
    assert [phase["winner"] for phase in told["phases"]][:3] == ["MB", "MB", "EB"]


def test_the_documents_contract() -> None:
    document = trace_info(load("sharegpt"))
    assert {"rows", "first_s", "last_s", "prompt_tokens", "output_tokens", "skipped", "source", "digest"} <= set(
        document
    )
    for name in ("prompt_tokens", "output_tokens"):
        assert {"sum", "mean", "p50", "p99", "max"} <= set(document[name])
    assert json.loads(json.dumps(document)) == document


def test_pieces_of_a_plot_add_up() -> None:
    trace = load("drift:bursts")
    assert trace.timestamp_s is not None
    middles, unit, rate, ratio = over_time(trace)
    width = float(trace.timestamp_s[-1]) / len(middles)
    assert unit.endswith("(s)")
    assert float(rate.sum()) * width == pytest.approx(len(trace))
    assert float(ratio.mean()) == pytest.approx(1 / 3, abs=0.02)
    _, shares = length_shares(trace.output_tokens)
    assert float(shares.sum()) == pytest.approx(100)
    assert [name for _, name in marks_at(trace)][:2] == ["base 1", "burst 1"]
    untimed = over_time(load("drift:distribution"))
    assert untimed[1].startswith("request")
    assert untimed[3][0] < 0.2
    assert untimed[3][-1] > 0.8


@pytest.mark.parametrize("workload", ["drift:bursts,count=2", "drift:distribution", "synthetic:law=fixed"])
def test_a_page_that_opens_anywhere(tmp_path: Path, workload: str) -> None:
    out = tmp_path / "t.html"
    trace = load(workload, 900)
    plot_trace(trace, out)
    page = out.read_text(encoding="utf-8")
    assert "<script src=" not in page
    for title in ("prompt length (tokens)", "output length (tokens)", "hazard (1/token)", "decode tokens"):
        assert title.replace("/", r"\u002f") in page
    for mark in trace.source.get("phases", []):
        assert mark["name"].replace("/", r"\u002f") in page


def test_a_hostile_name_is_only_text(tmp_path: Path) -> None:
    out = tmp_path / "t.html"
    plot_trace(Trace("t", ints(1, 2), ints(1, 2), {"kind": "file", "data_set": "</script><b>"}), out)
    assert "<b>" not in out.read_text(encoding="utf-8").rpartition("Plotly.newPlot")[2]
    with pytest.raises(UserError, match=r"must end in \.html"):
        plot_trace(load("synthetic", 5), tmp_path / "t.svg")
    with pytest.raises(UserError, match="cannot be written: No such file"):
        plot_trace(load("synthetic", 5), tmp_path / "none/t.html")
