"""`bench run --engine vllm`: a server of its own for each policy, one of which is killed at its work.

The runs that nothing happens to are those of the demonstration (test_demo.py), and one of vLLM untouched. The one that
is killed has a user's own policy.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.runs.step_log import read_step_log
from policies.own.file import read_file
from policies.own.load import canonical_own
from tests.support.commands import BENCH, Bench
from tests.support.partial_runs import completed_rows
from tests.support.places import ROOT
from tests.support.real_vllm import DEMO_REQUESTS, LEAN, RUN, Demo, engines, wait_for

TEMPLATE = ROOT / "policies/own/template.py"
VICTIM = canonical_own(read_file(str(TEMPLATE), "Mine"), {"k": "4"})
# The session of a crash: the arm that is killed, then one that nothing of ours rides in.
ARMS = (VICTIM, "stock")
REQUESTS = 600
# Checks that a busy machine fails.
BUSY = {"client_cpu", "client_wait", "delivery", "elsewhere", "send_lag"}


def driven(place: Path, policy: str) -> Path | None:
    """The directory of a policy's run once requests of it and their steps are on disk, while it runs."""
    for manifest in place.glob("runs/**/*.partial/run.json"):
        directory = manifest.parent
        if json.loads(manifest.read_bytes())["spec"]["policy"] == policy and completed_rows(directory.parent):
            return directory if len(read_step_log(directory / "steps.log", 0).rows) else None
    return None


@pytest.fixture(scope="module")
def crashed(place: Path, engine_python: str) -> tuple[int, dict[str, Any], dict[str, Path]]:
    """Two arms in one `bench run`, the first's engine killed at its work: exit code, document, directories."""
    (place / "mine.py").write_bytes(TEMPLATE.read_bytes())
    command = [
        BENCH,
        *RUN,
        "--policy",
        "stock,./mine.py:Mine,k=4",
        "--requests",
        str(REQUESTS),
        "--engine-python",
        engine_python,
    ]
    own = {"BENCH_CACHE": str(place / "cache"), "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(
        [*command, "--json"], cwd=place, env=os.environ | own, stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: driven(place, VICTIM) or process.poll() is not None, 900)
        for pid in engines(place):
            if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate()
    document = json.loads(out)
    return process.returncode, document, {run["policy"]: place / run["dir"] for run in document["runs"]}


@pytest.fixture(scope="module")
def whole(demo: Demo, crashed: tuple[int, dict[str, Any], dict[str, Path]]) -> dict[str, Path]:
    """The directories of runs that were let alone: the demonstration's three and vLLM untouched."""
    return demo.directories | {"stock": crashed[2]["stock"]}


def manifest(directory: Path) -> dict[str, Any]:
    return dict(json.loads((directory / "run.json").read_bytes()))


def test_a_crash_fails_its_run_and_no_other(crashed: tuple[int, dict[str, Any], dict[str, Path]], place: Path) -> None:
    code, document, _ = crashed
    assert code == 3
    status = {run["policy"]: run["status"] for run in document["runs"]}
    assert status == {VICTIM: "failed", "stock": "complete"}
    (victim,) = (run for run in document["runs"] if run["policy"] == VICTIM)
    assert victim["verdict"]["level"] == "INVALID"
    assert "the engine failed" in victim["verdict"]["reasons"][0]
    assert 0 < victim["counts"]["completed"] < REQUESTS, "what it had done is kept"
    assert victim["counts"]["steps"] > 0
    assert not engines(place)


def test_a_users_own_policy_rides_inside(crashed: tuple[int, dict[str, Any], dict[str, Path]]) -> None:
    directory = crashed[2][VICTIM]
    assert (directory / "policy.py").read_bytes() == TEMPLATE.read_bytes()
    assert manifest(directory)["engine_steps"]["policy"] == VICTIM
    steps = pq.read_table(directory / "steps.parquet").to_pylist()
    waited_s = [step["policy_own"][0] for step in steps if step["policy_own"]]
    assert max(waited_s) > 0, "its own column: how long the first has waited"


@pytest.mark.parametrize("policy", ["v1", "eb", "ebplus", "stock"])
def test_nothing_is_lost_or_twice(policy: str, whole: dict[str, Path]) -> None:
    told = manifest(whole[policy])
    requests = REQUESTS if policy == "stock" else DEMO_REQUESTS
    assert told["counts"]["completed"] == requests
    assert told["kind"] == "measured"
    rows = pq.read_table(whole[policy] / "requests.parquet").to_pylist()
    assert sorted(row["row"] for row in rows) == list(range(requests))
    assert all(row["output_tokens"] == row["expected_output_tokens"] for row in rows)
    wrong = {one["name"] for one in told["verdict"]["checks"] if one["level"] == "INVALID"}
    # What else runs on the machine of a test is none of the run's doing.
    assert wrong <= BUSY


@pytest.mark.parametrize("policy", ["v1", "eb", "ebplus"])
def test_the_step_log_accounts_for_every_token(policy: str, whole: dict[str, Path]) -> None:
    steps = pq.read_table(whole[policy] / "steps.parquet").to_pylist()
    told = manifest(whole[policy])
    counts = told["counts"]
    assert told["engine_steps"]["policy"] == policy
    assert counts["preemptions"] == 0, "the KV cache is ample"
    assert sum(step["prefill_tokens"] for step in steps) == counts["prompt_tokens"]
    # A prompt's last chunk gives the first token.
    assert sum(step["decode_requests"] for step in steps) == counts["output_tokens"] - DEMO_REQUESTS
    assert steps[0]["t_s"] >= 0
    assert all(a["t_s"] + a["duration_s"] <= b["t_s"] + 1e-9 for a, b in itertools.pairwise(steps))
    if policy == "eb":
        assert counts["mixed_steps"] == 0
    if policy == "v1":
        assert counts["mixed_steps"] > 0
    if policy in ("eb", "ebplus"):
        assert {step["policy_mode"] for step in steps} <= {"EB", "MB"}
        assert steps[-1]["policy_k"] is not None


def test_stock_has_no_step_log(crashed: tuple[int, dict[str, Any], dict[str, Path]]) -> None:
    _, document, directories = crashed
    (run,) = (run for run in document["runs"] if run["policy"] == "stock")
    assert run["counts"]["steps"] in (0, None)
    assert not {"gap_mean", "violation_share", "externality"} & {
        name for name, value in run["metrics"].items() if value
    }
    assert "--scheduler-cls" not in manifest(directories["stock"])["provenance"]["engine_command"]


def test_what_was_started_and_what_it_is_stand_in_the_manifest(
    whole: dict[str, Path], crashed: tuple[int, dict[str, Any], dict[str, Path]]
) -> None:
    for policy, directory in (whole | crashed[2]).items():
        told = manifest(directory)
        provenance = told["provenance"]
        assert provenance["engine_version"].startswith("0.")
        assert provenance["async_scheduling"] is False, "vLLM on a CPU forces it off"
        # The demonstration asks for other sizes than RUN does, and each server says what it was given.
        sizes = (16, 256) if policy in ARMS else (32, 512)
        settings = provenance["engine_settings"]
        assert (settings["max_num_seqs"], settings["max_num_batched_tokens"]) == sizes
        assert provenance["engine_command"][1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
        assert (directory / "engine.log").stat().st_size > 1000
        if policy != VICTIM:
            assert told["prefix_cache"]["observed"] == 0
    commands = [
        [word for word in manifest(whole[policy])["provenance"]["engine_command"] if not word.isdigit()]
        for policy in ("v1", "eb", "ebplus")
    ]
    assert len({tuple(word for word in words if not word.startswith("{")) for words in commands}) == 1


def test_arms_compare_and_show(whole: dict[str, Path], bench: Bench) -> None:
    shown = bench("show", str(whole["ebplus"]))
    assert shown.code == 0
    assert "measured · complete" in shown.out
    compared = bench("compare", str(whole["v1"]), str(whole["ebplus"]), "--json")
    assert compared.code == 0, compared.err


def test_kill_9_leaves_a_run_to_recover_and_no_process(place: Path, engine_python: str, bench: Bench) -> None:
    command = [BENCH, *RUN, "--policy", "eb:k=8", "--requests", "20000", "--engine-python", engine_python]
    # The whole tree that a user's vLLM is on a CPU, its worker a process of its own.
    usual = {name: value for name, value in os.environ.items() if name not in LEAN}
    own = {"BENCH_CACHE": str(place / "cache"), "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, cwd=place, env=usual | own, stderr=subprocess.DEVNULL) as process:
        partial = wait_for(lambda: driven(place, "eb:k=8"))
        assert len(engines(place)) >= 4, "guardian, server, engine and worker"
        process.kill()
    wait_for(lambda: not engines(place), 60)
    recovered = bench("recover", str(partial))
    assert recovered.code == 0, recovered.err
    told = manifest(partial.with_name(partial.name.removesuffix(".partial")))
    assert told["status"] == "interrupted"
    assert told["counts"]["completed"] > 0
    assert told["counts"]["steps"] > 0
    assert told["counts"]["mixed_steps"] == 0
