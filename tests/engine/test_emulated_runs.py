"""`--engine emulated`: runs of vLLM's own scheduler in virtual time, with the vLLM that BENCH_ENGINE_PYTHON names."""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.engines.emulated import Emulated
from harness.engines.serving.environments import examine
from harness.engines.serving.scheduler_process import SchedulerProcess
from harness.engines.simulated import Simulated
from harness.runs.run import Run
from harness.runs.step_log import read_step_log
from harness.session.one_run import Prepared, prepare, run
from tests.support.commands import BENCH, bench_in
from tests.support.partial_runs import wait_until
from workloads.core.stream import Stream

# A cache small enough to preempt, a budget small enough to cut prompts into chunks, one request in fifty too long.
SPEC = RunSpec(
    gpu="l40s",
    model="Qwen/Qwen3-8B",
    policy="v1",
    workload="sharegpt",
    engine="emulated",
    arrival="closed:concurrency=48",
    requests=150,
    slots=32,
    token_budget=256,
    kv_tokens=8000,
    max_model_len=2048,
)


def nothing(_: Status) -> None:
    pass


@pytest.fixture(scope="module")
def python(engine_python: str) -> Path:
    return Path(engine_python)


@pytest.fixture(scope="module")
def process(python: Path) -> Iterator[SchedulerProcess]:
    one = SchedulerProcess(python)
    yield one
    one.close()


def ready(spec: RunSpec, process: SchedulerProcess) -> Prepared:
    def make(spec: RunSpec, stream: Stream) -> Emulated:
        return Emulated(spec, stream, examine(process.python), process)

    return prepare(spec, make)


def emulate(spec: RunSpec, process: SchedulerProcess, out: Path, **how: Any) -> Run:
    return run(ready(spec, process), out, ["bench"], how.get("progress", nothing), how.get("stopped", lambda: False))


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "v1"},
        {"policy": "eb:k=8"},
        {"policy": "ebplus"},
        {"policy": "eb", "arrival": "poisson:rate=6.0", "kv_tokens": None},
        {"policy": "v0", "max_duration_s": 20.0},
    ],
    ids=["v1", "eb-k", "ebplus", "eb-open", "v0-duration"],
)
def test_a_run_is_that_of_the_virtual_engine(tmp_path: Path, process: SchedulerProcess, change: dict[str, Any]) -> None:
    spec = dataclasses.replace(SPEC, **change)
    emulated = emulate(spec, process, tmp_path / "emulated")
    simulated = run(
        prepare(dataclasses.replace(spec, engine="simulated"), Simulated),
        tmp_path / "simulated",
        ["bench"],
        nothing,
        lambda: False,
    )
    assert (emulated.kind, emulated.status) == ("emulated", "complete")
    ours, theirs = (one.requests().sort_by("row") for one in (simulated, emulated))
    for name in ours.column_names:
        assert theirs[name].equals(ours[name]), name
    ours_steps, theirs_steps = simulated.steps(), emulated.steps()
    assert ours_steps is not None
    assert theirs_steps is not None
    for name in ours_steps.column_names:
        assert theirs_steps[name].equals(ours_steps[name]), name
    assert emulated.manifest["planned"] == simulated.manifest["planned"]
    assert emulated.summary["metrics"] == simulated.summary["metrics"]
    if spec.kv_tokens:
        assert emulated.manifest["counts"]["preemptions"] > 0
        assert emulated.manifest["counts"]["finishes"]["too_long"] > 0
    if spec.max_duration_s:
        assert any("sending ended after 20 s" in note for note in emulated.manifest["notes"])


def test_it_says_whose_scheduler_it_was(tmp_path: Path, process: SchedulerProcess) -> None:
    seen: list[Status] = []
    one = emulate(dataclasses.replace(SPEC, requests=40), process, tmp_path, progress=seen.append)
    provenance = one.manifest["provenance"]
    assert provenance["engine"] == "vLLM's scheduler in virtual time"
    assert provenance["engine_version"] == f"vLLM {process.version}"
    assert provenance["scheduler_class"] == "policies.vllm_plugin.PolicyScheduler"
    assert provenance["cost_model"]["basis"] == "measured kernels"
    assert one.manifest["engine_steps"]["vllm"] == process.version
    assert one.manifest["engine_steps"]["policy"] == "v1"
    assert any(note.startswith(f"emulated: vLLM {process.version}") for note in one.manifest["notes"])
    assert seen[-1].finished == 40


def test_ids_of_a_file_are_kept(tmp_path: Path, process: SchedulerProcess) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(
        "".join(f'{{"id": "r-{i}", "prompt_tokens": 400, "output_tokens": 200}}\n' for i in range(20)), encoding="utf-8"
    )
    spec = dataclasses.replace(SPEC, workload=f"file:{file}", requests=20, kv_tokens=6000)
    one = emulate(spec, process, tmp_path / "runs")
    table = one.requests().sort_by("row")
    assert table["id"].to_pylist() == [f"r-{i}" for i in range(20)]
    assert one.manifest["counts"]["preemptions"] == sum(table["preemptions"].to_pylist()) > 0
    for gaps, tokens in zip(table["token_gaps_s"].to_pylist(), table["output_tokens"].to_pylist(), strict=True):
        assert gaps is None or len(gaps) == tokens - 1


def test_stopping_keeps_what_has_ended(tmp_path: Path, process: SchedulerProcess) -> None:
    ended: list[int] = []
    one = emulate(
        dataclasses.replace(SPEC, requests=1000),
        process,
        tmp_path,
        progress=lambda status: ended.append(status.finished),
        stopped=lambda: bool(ended) and ended[-1] > 50,
    )
    assert one.status == "interrupted"
    assert 50 < one.manifest["counts"]["requests"] < 1000
    assert one.manifest["counts"]["steps"] > 50
    # The process is ready for the next.
    assert emulate(dataclasses.replace(SPEC, requests=20), process, tmp_path).status == "complete"


def test_a_scheduler_that_fails_names_policy_and_step_and_the_next_run_goes_on(
    tmp_path: Path, process: SchedulerProcess
) -> None:
    unlimited = resource.RLIM_INFINITY

    def limit(size: int) -> None:
        assert process.ready(lambda: False, lambda _: None)
        assert process._process is not None
        resource.prlimit(process._process.pid, resource.RLIMIT_FSIZE, (size, unlimited))

    limit(30_000)
    try:
        one = emulate(dataclasses.replace(SPEC, requests=1000), process, tmp_path)
    finally:
        limit(unlimited)
    assert one.status == "failed"
    assert re.fullmatch(
        r"policy v1, step \d+: PolicyFault: the step log cannot be written any more: .*", one.manifest["reason"]
    )
    assert one.level == "INVALID"
    assert one.manifest["counts"]["steps"] > 100
    assert emulate(dataclasses.replace(SPEC, requests=20), process, tmp_path).status == "complete"


def test_the_command_line(tmp_path: Path, python: Path) -> None:
    bench = bench_in(tmp_path)
    given = ("run", "--engine", "emulated", "--engine-python", str(python), "--gpu", "l40s", "--workload", "sharegpt")
    size = ("--requests", "60", "--concurrency", "32", "--slots", "16")
    result = bench(*given, *size, "--policy", "v1,eb:k=4", "--json")
    assert result.code == 0, result.err
    assert {one["policy"]: one["kind"] for one in result.json["runs"]} == {"v1": "emulated", "eb:k=4": "emulated"}
    assert "replaying with vLLM's own scheduler in virtual time: results are `emulated`" in result.err

    size = ("--requests", "100000", "--concurrency", "32", "--slots", "16")
    command = [BENCH, *given, *size, "--policy", "v1", "--out", "stopped"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bench_:
        logs = "stopped/*/*/*/*/*.partial/steps.log"
        wait_until(lambda: any(len(read_step_log(log, 0).rows) for log in tmp_path.glob(logs)), bench_)
        bench_.send_signal(signal.SIGINT)
        _, err = bench_.communicate(timeout=120)
    assert bench_.returncode == 130, err
    assert "Traceback" not in err
    (directory,) = tmp_path.glob("stopped/*/*/*/*/*")
    assert pq.read_table(directory / "steps.parquet").num_rows > 0
    assert bench("show", str(directory), "--json").json["runs"][0]["status"] == "interrupted"


def test_a_process_that_is_killed_fails_its_run_and_keeps_the_rows(tmp_path: Path, process: SchedulerProcess) -> None:
    # The last test, for it ends the process that all others share.
    prepared = ready(dataclasses.replace(SPEC, requests=2000), process)

    def kill(status: Status) -> None:
        if status.finished > 100 and process._process is not None and process._process.poll() is None:
            os.kill(process._process.pid, signal.SIGKILL)

    failed = run(prepared, tmp_path, ["bench"], kill, lambda: False)
    assert failed.status == "failed"
    assert "process ended (signal 9)" in failed.manifest["reason"]
    assert failed.manifest["counts"]["requests"] > 100
    steps = failed.steps()
    assert steps is not None
    assert np.all(np.diff(steps["t_s"].to_numpy()) > 0)
