"""`bench run --replicas` as users type it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.commands import RUN, Bench

REPLICATED = (*RUN, "--policy", "v1", "--replicas", "3", "--repeat", "1", "--alone")


def test_replicas_share_the_requests_and_both_tables_tell_who_did_what(bench: Bench, tmp_path: Path) -> None:
    result = bench(*REPLICATED, "--json")
    assert result.code == 0, result.err
    assert "3 replicas behind a router (least-loaded)" in result.err
    (run,) = result.json["runs"]
    directory = tmp_path / run["dir"]
    manifest = json.loads((directory / "run.json").read_text())
    assert (manifest["spec"]["replicas"], manifest["spec"]["router"]) == (3, "least-loaded")
    requests, steps = (pq.read_table(directory / f"{name}.parquet").to_pydict() for name in ("requests", "steps"))
    for place, told in enumerate(manifest["replicas"]):
        mine = [i for i, replica in enumerate(requests["replica"]) if replica == place]
        assert told["requests"] == len(mine) > 0
        assert told["output_tokens"] == sum(requests["output_tokens"][i] for i in mine)
        assert told["steps"] == steps["replica"].count(place) > 0
    (balance,) = [check for check in manifest["verdict"]["checks"] if check["name"] == "replica_balance"]
    tokens = [told["prompt_tokens"] + told["output_tokens"] for told in manifest["replicas"]]
    assert balance["value"] == pytest.approx(100 * (3 * max(tokens) / sum(tokens) - 1))
    verified = bench("verify", run["dir"])
    assert verified.code == 0, verified.out
    # Without its tables the run gives them again, replica by replica.
    assert bench("thin", run["dir"]).code == 0
    assert not (directory / "steps.parquet").exists()
    assert bench("expand", run["dir"]).code == 0
    assert pq.read_table(directory / "steps.parquet").to_pydict() == steps


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--router", "round-robin"), "--router goes with --replicas"),
        (("--replicas", "2", "--engine", "tokenstep"), "--replicas goes with --engine simulated"),
        (("--replicas", "2", "--url", "http://127.0.0.1:9"), "give the URL of the router"),
        (("--replicas", "0"), "0 is not in the range"),
    ],
)
def test_what_cannot_be_replicated_is_a_line(bench: Bench, options: tuple[str, ...], said: str) -> None:
    result = bench(*RUN, "--policy", "v1", *options)
    assert result.code == 2
    assert said in result.err.splitlines()[-1]
