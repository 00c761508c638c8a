"""What an error message says to do works when it is done."""

from __future__ import annotations

import pytest

from tests.support.commands import ONCE, RUN, Bench

SMALL = (
    *("run", "--gpu", "l40s", "--workload", "synthetic:mu_l=64,mu_o=16", *ONCE),
    *("--requests", "60", "--concurrency", "8"),
)


@pytest.mark.parametrize(
    ("command", "says", "then"),
    [
        (
            (*SMALL[:-2], "--policy", "v1", "--arrival", "poisson"),
            "--rate 20",
            ("run", "--gpu", "l40s", "--policy", "v1", "--workload", "sharegpt", "--requests", "60", "--rate", "20"),
        ),
        ((*SMALL, "--policy", "stock"), "elsewhere v1 is the nearest", (*SMALL, "--policy", "v1")),
        (
            ("run", "--gpu", "cpu", "--engine", "simulated", *SMALL[3:], "--policy", "v1"),
            "simulate a GPU",
            (*SMALL, "--engine", "simulated", "--policy", "v1"),
        ),
        (
            (*SMALL, "--policy", "v1,eb:k=4", "--fail-on", "output_troughput<-5%"),
            "where the nearest are output_throughput",
            (*SMALL, "--policy", "v1,eb:k=4", "--fail-on", "output_throughput<-90%"),
        ),
        (
            (*SMALL, "--policy", "v1,eb:k=4", "--fail-on", "profit_money<-5%"),
            "no metric profit_money in a comparison",
            (*SMALL, "--policy", "v1,eb:k=4", "--fail-on", "goodput<-90%", "--slo", "ttft_s=9"),
        ),
        (
            ("run", *SMALL[1:3], "--policy", "v1", "--workload", "sharegpt:hf=x/y", "--requests", "60"),
            "without hf",
            ("run", *SMALL[1:3], "--policy", "v1", "--workload", "sharegpt", "--requests", "60"),
        ),
        ((*SMALL, "--policy", "v1", "--engine", "vllm"), "leave out --engine", (*SMALL, "--policy", "v1")),
    ],
    ids=["rate", "stock", "cpu", "metric", "profit", "hub", "vllm"],
)
def test_doing_what_the_message_says_helps(
    command: tuple[str, ...], says: str, then: tuple[str, ...], bench: Bench
) -> None:
    refused = bench(*command)
    assert refused.code == 2
    assert says in refused.err
    assert len(refused.err.strip().splitlines()) <= 3
    assert bench(*then).code == 0


def test_repeats_that_do_not_match_are_compared_when_their_runs_are_named(bench: Bench) -> None:
    both = bench(*RUN, "--policy", "v1,eb:k=4", "--repeat", "2", "--out", "runs", "--json")
    alone = bench(*RUN, "--policy", "v1", "--seed", "7", "--out", "runs", "--json")
    assert (both.code, alone.code) == (0, 0)
    refused = bench("compare", "runs")
    assert refused.code == 2
    assert "name the runs of one `bench run`" in refused.err
    assert bench("compare", *(run["dir"] for run in both.json["runs"])).code == 0
