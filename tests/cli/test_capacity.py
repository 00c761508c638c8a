"""Lists of loads, the search for a capacity, and two servers against each other, as users type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Bench, Serve

OURS = ("--gpu", "l40s", "--workload", "synthetic:mu_l=256,mu_o=32", "--requests", "120")
# Four slots hold a few requests a second, whatever the tuning of the cost model.
FEW = (*OURS, "--slots", "4", "--slo", "ttft_p95=500ms,tpot_p95=1")


def test_several_rates_make_a_curve_with_its_knee(bench: Bench) -> None:
    command = ("run", *OURS, "--slots", "4", "--policy", "v1", "--alone", "--slo", "ttft_s=1")
    result = bench(*command, "--concurrency", "1,2,8")
    assert result.code == 0, result.err
    assert "by requests in flight" in result.out
    assert result.out.count("← knee") == 1
    assert "goodput" in result.out
    document = bench(*command, "--rate", "0.5,1,2", "--json").json
    assert len(document["runs"]) == 3
    (curve,) = document["curves"]
    assert [point["load"] for point in curve["points"]] == [0.5, 1, 2]
    served = [point["values"]["request_throughput.value"] for point in curve["points"]]
    # Up to what the slots hold, what is offered is served.
    assert served[0] < served[1] < served[2]


def test_a_capacity_is_found_once_and_then_read_again(bench: Bench, tmp_path: Path) -> None:
    command = ("capacity", *FEW, "--policy", "v1,ljf", "--lengths", "oracle", "--repeat", "2", "--precision", "0.3")
    first = bench(*command, "--json")
    assert first.code == 0, first.err
    runs = set((tmp_path / "runs").rglob("run.json"))
    document = first.json
    assert document["limits"] == {"ttft_p95": 0.5, "tpot_p95": 1.0}
    for arm in document["capacity"]:
        points = {point["load"]: point for point in arm["points"]}
        assert points[arm["met"]]["met"] is True
        assert points[arm["unmet"]]["met"] is False
        assert "ttft_p95" in points[arm["unmet"]]["why"]
        assert arm["unmet"] / arm["met"] == pytest.approx(1.3, rel=0.01)
        assert arm["low"] <= arm["value"] <= arm["high"]
        # At the loads that are met so are the limits, by the mean of the logs over the repeats.
        worst = points[arm["met"]]["values"]["ttft_p95"]
        assert worst[0] * worst[1] <= 0.5**2
    again = bench(*command)
    assert again.code == 0, again.err
    assert set((tmp_path / "runs").rglob("run.json")) == runs
    assert "were there already" in again.err
    assert "met at" in again.out
    assert "against v1: capacity" in again.out


def test_a_capacity_in_requests_in_flight(bench: Bench) -> None:
    result = bench("capacity", *FEW, "--policy", "v1", "--by", "concurrency", "--repeat", "1", "--json")
    assert result.code == 0, result.err
    (arm,) = result.json["capacity"]
    # With four slots the fifth request waits for a whole answer.
    assert 4 <= arm["met"] < arm["unmet"] <= 8


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--slo", "ttft_s=1"), "ttft_p95=1"),
        (("--slo", "ttft_p99=1", "--requests", "50"), "--requests 50: ttft_p99 takes 100"),
        (("--slo", "ttft_p95=1", "--engine", "tokenstep"), "all requests at once"),
        (("--slo", "ttft_p95=1", "--by", "concurrency", "--arrival", "constant"), "a closed loop has none"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_a_line(bench: Bench, options: tuple[str, ...], told: str) -> None:
    result = bench("capacity", *OURS, "--policy", "v1", *options)
    assert result.code == 2, result
    assert told in result.err
    assert len(result.err.splitlines()) == 1


def test_two_servers_are_driven_in_turn_and_compared_by_name(bench: Bench, serve: Serve) -> None:
    slow, _ = serve("--ttft", "10", "--itl", "8")
    fast, _ = serve("--ttft", "10", "--itl", "2")
    common = ("run", "--workload", "synthetic:mu_l=20,mu_o=8", "--requests", "40", "--concurrency", "8")
    arms = ("--arm", f"before={slow}", "--arm", f"after={fast}")
    result = bench(*common, *arms, "--repeat", "2", "--json")
    assert result.code == 0, result.err
    document = result.json
    assert [run["policy"] for run in document["runs"]].count("before") == 2
    # In each repeat both, in an order that was drawn.
    assert {(run["policy"], run["repeat"]) for run in document["runs"]} == {
        (arm, repeat) for arm in ("before", "after") for repeat in range(2)
    }
    (comparison,) = document["comparisons"]
    # A quarter by the servers' own pace; the word depends on how busy this machine is.
    assert comparison["metrics"]["tpot_s"]["ratio"] < 0.6


def test_servers_of_two_models_are_no_arms(bench: Bench, serve: Serve) -> None:
    one, other = serve()[0], serve("--model", "other")[0]
    result = bench("run", "--url", one, "--url", other, "--workload", "synthetic:mu_l=20,mu_o=4", "--requests", "20")
    assert result.code == 2
    assert "serves other: arms differ in the server alone" in result.err


def test_a_second_url_is_an_arm_and_never_dropped(bench: Bench, serve: Serve) -> None:
    url, _ = serve()
    common = ("run", "--workload", "synthetic:mu_l=20,mu_o=4", "--requests", "20", "--concurrency", "8")
    runs = bench(*common, "--url", url, "--url", url, "--json").json["runs"]
    assert sorted(run["policy"] for run in runs) == ["a", "b"]
    refused = bench(*common, "--url", url, "--url", url, "--policy", "only-one")
    assert refused.code == 2
    assert "2 servers and 1 policies" in refused.err


def test_a_capacity_of_a_server_that_runs(bench: Bench, serve: Serve) -> None:
    url, _ = serve("--ttft", "20", "--itl", "1", "--slots", "4")
    result = bench(
        "capacity", "--url", url, "--workload", "synthetic:mu_l=20,mu_o=20", "--requests", "60", "--repeat", "1",
        "--by", "concurrency", "--slo", "ttft_p90=30ms", "--precision", "0.3", "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    (arm,) = result.json["capacity"]
    assert arm["engine"] == "endpoint"
    points = {point["load"]: point for point in arm["points"]}
    assert {2.0, 8.0} & set(points)
    # More than the four slots hold: some wait for a whole answer, on however fast a machine.
    assert not any(point["met"] for load, point in points.items() if load > 4)
    assert all("ttft_p90" in point["why"] or "INVALID" in point["why"] for point in points.values() if not point["met"])
