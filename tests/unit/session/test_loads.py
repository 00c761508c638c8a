"""Lists of rates and concurrencies: which runs they ask for."""

from __future__ import annotations

import dataclasses

import pytest

from harness.core.errors import UserError
from harness.session.ask import Asked, read_arrivals
from harness.session.grid import plan_runs
from harness.session.options import RunOptions, read_options
from tests.support.runfactory import SPEC
from workloads.catalog import load_workload
from workloads.core.errors import WorkloadError
from workloads.core.options import split
from workloads.core.trace import Trace


def test_each_load_is_an_arrival_once() -> None:
    assert read_arrivals(RunOptions(rates=(5.0, 10.0, 5.0)), "simulated") == ("poisson:rate=5.0", "poisson:rate=10.0")
    assert read_arrivals(RunOptions(concurrencies=(64, 8)), "simulated") == (
        "closed:concurrency=64",
        "closed:concurrency=8",
    )
    assert read_arrivals(RunOptions(arrival="gamma:cv=2", rates=(3.0,)), "simulated") == ("gamma:cv=2.0,rate=3.0",)


def test_no_load_leaves_it_to_the_workload() -> None:
    assert read_arrivals(RunOptions(), "simulated") == ("",)
    assert read_arrivals(RunOptions(), "tokenstep") == ("offline",)


def test_a_rate_and_a_concurrency_do_not_go_together() -> None:
    with pytest.raises(WorkloadError, match="not both"):
        read_arrivals(RunOptions(rates=(5.0,), concurrencies=(5,)), "simulated")


@pytest.mark.parametrize(("given", "read"), [(5, (5.0,)), ([5, 10.5], (5.0, 10.5)), (None, ())])
def test_from_python_a_rate_is_a_number_or_a_list(given: object, read: tuple[float, ...]) -> None:
    assert read_options({"rate": given}).rates == read


@pytest.mark.parametrize("given", [["x"], [True], "5", {"a": 1}])
def test_from_python_a_rate_is_nothing_else(given: object) -> None:
    with pytest.raises(UserError, match="rate is"):
        read_options({"rate": given})


def test_runs_of_all_loads_share_seeds_repeat_by_repeat() -> None:
    def load(workload: str, requests: int | None) -> Trace:
        name, given = split(workload)
        return load_workload(name, given, requests=requests, seed=0, model=SPEC.model)

    template = dataclasses.replace(SPEC, seed=7)
    arrivals = ("poisson:rate=1.0", "poisson:rate=2.0")
    asked = Asked(("l40s",), ("v1", "ebplus"), (SPEC.workload,), template, 20, repeat=2, arrivals=arrivals)
    runs = plan_runs(asked, load)
    assert [(run.repeat, run.seed, run.arrival) for run in runs[::2]] == [
        (repeat, 7 + repeat, arrival) for repeat in (0, 1) for arrival in arrivals
    ]
    for first, second in zip(runs[::2], runs[1::2], strict=True):
        assert {first.policy, second.policy} == {"v1", "ebplus"}
        assert dataclasses.replace(first, policy="") == dataclasses.replace(second, policy="")
