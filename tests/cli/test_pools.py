"""`bench run --policy pd` as users type it: beside another policy on as many GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import RUN, Bench

POOLS = (*RUN, "--repeat", "1", "--alone")


def test_prefill_and_decode_apart_beside_as_many_replicas(bench: Bench, tmp_path: Path) -> None:
    result = bench(*POOLS, "--policy", "v1,pd:prefill=1,decode=2", "--replicas", "3", "--json")
    assert result.code == 0, result.err
    assert "1 engines prefill and 2 decode" in result.err
    (run,) = [run for run in result.json["runs"] if run["policy"] == "pd:decode=2"]
    assert run["counts"]["completed"] == 300
    manifest = json.loads((tmp_path / run["dir"] / "run.json").read_text())
    pools = manifest["provenance"]["pools"]
    # 36 layers, 8 heads of 128, keys and values of two bytes.
    assert pools["bytes_per_token"] == 36 * 8 * 128 * 2 * 2
    assert pools["link_gb_s"] == 32
    assert "datasheet" in pools["link_source"]
    prefill, *decode = manifest["replicas"]
    assert prefill["prefill_tokens"] == run["counts"]["prompt_tokens"]
    assert prefill["requests"] == 0
    assert sum(one["requests"] for one in decode) == 300
    (comparison,) = result.json["comparisons"]
    assert comparison["metrics"], "equal GPUs and requests: comparable"
    assert bench("verify", run["dir"]).code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--policy", "pd"), "give --replicas 2"),
        (("--policy", "pd:decode=3", "--replicas", "2"), "takes 4 engines and --replicas is 2"),
        (("--policy", "pd", "--replicas", "2", "--prefix-caching"), "goes without --prefix-caching"),
        (("--policy", "pd:prefill=0"), "must be a whole number of 1"),
    ],
)
def test_what_cannot_be_apart_is_a_line(bench: Bench, options: tuple[str, ...], said: str) -> None:
    result = bench(*POOLS, *options)
    assert result.code == 2, result.err
    assert said in result.err.splitlines()[-1]
