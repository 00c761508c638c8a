"""`bench run`: what it prints, what it keeps, what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.commands import BENCH, ONCE, RUN, Bench, bench_in
from tests.support.partial_runs import wait_for_completed, wait_until

METRICS = ("request_throughput", "output_throughput", "total_throughput", "ttft_s", "tpot_s", "itl_s", "e2el_s")


def test_the_main_command_prints_one_document_and_keeps_the_run(bench: Bench, tmp_path: Path) -> None:
    result = bench(*RUN, "--policy", "v1,ebplus", "--json")
    assert result.code == 0, result.err
    runs = result.json["runs"]
    assert {run["policy"] for run in runs} == {"v1", "ebplus"}
    for run in runs:
        assert (run["gpu"], run["model"], run["workload"]) == ("l40s", "Qwen/Qwen3-8B", "sharegpt")
        assert (run["engine"], run["kind"], run["status"]) == ("simulated", "simulated", "complete")
        assert run["verdict"]["level"] in ("VALID", "DEGRADED")
        assert run["counts"]["requests"] == run["counts"]["completed"] == 300
        assert run["counts"]["failed"] == 0
        for name in METRICS:
            values = run["metrics"][name]
            assert "unit" in values
            assert ("value" in values and values["low"] <= values["value"] <= values["high"]) or "p99" in values
        directory = tmp_path / run["dir"]
        requests, steps = (pq.read_table(directory / f"{name}.parquet") for name in ("requests", "steps"))
        assert requests.num_rows == 300
        assert steps.num_rows == run["counts"]["steps"]
        assert sum(requests["output_tokens"].to_pylist()) == run["counts"]["output_tokens"]
        assert (directory / "run.json").is_file()
        assert (directory / "summary.json").is_file()
    assert "simulated" in result.err
    assert "kernel times measured by NVIDIA" in result.err


def test_the_table_names_the_kind_and_gives_a_word(bench: Bench) -> None:
    result = bench(*RUN, "--policy", "v1,ebplus", "--repeat", "2")
    assert result.code == 0, result.err
    assert "simulated" in result.out
    assert "ebplus against v1" in result.out
    assert any(word in result.out for word in ("better", "worse", "no difference shown"))
    assert "2 paired repeats" in result.out


def test_a_twin_is_called_one(bench: Bench) -> None:
    run = ("run", "--gpu", "h200", "--policy", "v1", "--workload", "lmsys", "--requests", "50")
    assert "twin" in bench(*run).out
    assert bench(*run, "--json").json["runs"][0]["twin"] is True


def test_the_same_seed_gives_the_same_numbers_and_the_next_other_ones(tmp_path: Path) -> None:
    # Processes with hash seeds of their own.
    bench = bench_in(tmp_path)
    first, again, other = (
        bench(
            "run", "--gpu", "l40s", "--workload", "sharegpt", "--requests", "200", "--policy", "eb", "--rate", "40",
            "--seed", seed, "--json",
        )
        for seed in ("3", "3", "4")
    )  # fmt: skip
    assert first.json["runs"][0]["metrics"] == again.json["runs"][0]["metrics"]
    assert first.json["runs"][0]["digest"] == again.json["runs"][0]["digest"]
    assert first.json["runs"][0]["metrics"] != other.json["runs"][0]["metrics"]


def test_several_of_everything_are_combined(bench: Bench) -> None:
    result = bench(
        "run", "--gpu", "l40s,h200", "--policy", "v1,eb:k=8,window=50", "--policy", "v0", "--workload", "sharegpt",
        "--workload", "synthetic:mu_l=64,mu_o=32", "--requests", "60", "--slots", "16", *ONCE, "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    runs = result.json["runs"]
    assert len(runs) == 2 * 3 * 2
    assert {run["policy"] for run in runs} == {"v1", "eb:k=8,window=50", "v0"}


def test_policies_are_compared_five_times_where_they_are_simulated(bench: Bench) -> None:
    command = ("run", "--gpu", "l40s", "--policy", "v1,v0", "--workload", "synthetic:mu_l=64,mu_o=32")
    result = bench(*command, "--requests", "60", "--slots", "16", "--alone", "--json")
    assert sorted(run["repeat"] for run in result.json["runs"]) == sorted([*range(5)] * 2)


def test_lists_of_slots_and_workloads_are_compared_each_by_itself(bench: Bench) -> None:
    result = bench(
        "run", "--gpu", "l40s", "--policy", "v1,v0", "--workload", "sharegpt,lmsys", "--slots", "16,32", "--requests",
        "60", "--concurrency", "40", *ONCE,
    )  # fmt: skip
    assert result.code == 0, result.err
    for heading in ("sharegpt on l40s: ", "lmsys [lmsys (twin)] on l40s: "):
        for slots in (16, 32):
            assert any(
                line.startswith(heading) and line.endswith(f", {slots} slots") for line in result.out.splitlines()
            )
    assert result.out.count("v0 against v1") == 4


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--gpu", "l40"), "l40s"),
        (("--slots", "16,x"), "--slots"),
        (("--slots", "16,0"), "--slots"),
        (("--workload", "sharegpt,lmsis"), "lmsys"),
        (("--policy", "ebpluss"), "ebplus"),
        (("--workload", "sharegtp"), "sharegpt"),
        (("--policy", "eb:k=65"), "slots"),
        (("--policy", "eb:q=3"), "unknown option 'q'"),
        (("--policy", "eb:32"), "k=32"),
        (("--engine", "vlm"), "vllm"),
        (("--engine", "emulated", "--engine-python", "/nowhere/python"), "not a Python"),
        (("--engine", "emulated", "--engine-python", sys.executable), "there is no vLLM in it"),
        (("--engine", "emulated", "--engine-args", "--dtype float32"), "goes with --engine vllm"),
        (("--model", "Qwen/Qwen3-30B-A3B"), "fit"),
        (("--token-budget", "10"), "--token-budget"),
        (("--workload", "file:absent.jsonl"), "absent.jsonl"),
        (("--workload", "sharegpt:source=hub"), "sharegpt:path=FOLDER"),
        (("--slo", "ttft=1"), "ttft_s"),
        (("--rate", "0"), "rate"),
        (("--rate", "5"), "not both"),
        (("--arrival", "trace"), "timestamps"),
        (("--cost-model", "linear"), "roofline"),
        (("--requests", "0"), "--requests"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(
    bench: Bench, tmp_path: Path, args: tuple[str, ...], said: str
) -> None:
    base = list(RUN)
    if args[0] in base:
        at = base.index(args[0])
        del base[at : at + 2]
    if args[0] == "--arrival":
        at = base.index("--concurrency")
        del base[at : at + 2]
    result = bench(*base, *(() if args[0] == "--policy" else ("--policy", "v1")), *args)
    assert result.code == 2, result
    lines = [line for line in result.err.splitlines() if line.startswith(("bench:", "Error:"))]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (tmp_path / "runs").exists()


def test_names_are_missed(bench: Bench) -> None:
    for missing, rest in (("--gpu", RUN[3:]), ("--policy", RUN[1:])):
        result = bench("run", *rest, *(("--policy", "v1") if missing == "--gpu" else ()))
        assert result.code == 2
        assert missing in result.err


def test_a_request_too_long_for_the_cache_fails_by_name_and_the_run_goes_on(bench: Bench, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    rows = ['{"id": "small", "prompt_tokens": 20, "output_tokens": 5}'] * 1
    rows.append('{"id": "giant", "prompt_tokens": 5000, "output_tokens": 5}')
    rows.append('{"id": "last", "prompt_tokens": 30, "output_tokens": 7}')
    trace.write_text("\n".join(rows))
    result = bench("run", "--gpu", "l40s", "--policy", "v1,v0,eb,ebplus", "--workload", f"file:{trace}",
                   "--kv-tokens", "1024", *ONCE, "--json")  # fmt: skip
    assert result.code == 0, result.err
    for run in result.json["runs"]:
        assert run["counts"]["requests"] == 3
        assert run["counts"]["completed"] == 2
        assert run["counts"]["failed"] == 1
        assert run["verdict"]["level"] == "INVALID"
        table = pq.read_table(tmp_path / run["dir"] / "requests.parquet").to_pylist()
        failed = next(row for row in table if row["finish"] == "too_long")
        assert failed["id"] == "giant"
        assert "giant" in failed["error"]


def test_an_empty_trace_is_said(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    result = bench("run", "--gpu", "l40s", "--policy", "v1", "--workload", "file:empty.jsonl")
    assert result.code == 2
    assert "empty" in result.err


def test_ctrl_c_leaves_a_readable_interrupted_run(bench: Bench, tmp_path: Path) -> None:
    command = [BENCH, "run", "--gpu", "h200", "--policy", "v1", "--workload", "sharegpt", "--requests", "100000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for_completed(process, tmp_path)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    (directory,) = tmp_path.glob("runs/*/*/*/*/*")
    shown = bench("show", str(directory), "--json")
    assert shown.code == 0
    assert shown.json["runs"][0]["status"] == "interrupted"
    assert shown.json["runs"][0]["counts"]["requests"] > 0
    assert shown.json["runs"][0]["verdict"]["level"] == "INVALID"
    recovered = bench("recover", str(directory))
    assert recovered.code == 0
    assert "interrupted" in recovered.out
    assert str(directory.relative_to(tmp_path)) in out + err


def test_under_nohup_a_hang_up_ends_nothing(tmp_path: Path) -> None:
    command = ["nohup", BENCH, *RUN, "--policy", "v1", "--requests", "10000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: any(tmp_path.glob("runs/*/*/*/*/*.partial/requests.arrows")), process)
        process.send_signal(signal.SIGHUP)
        assert process.wait(120) == 0


def test_kill_9_leaves_what_bench_recover_makes_readable(bench: Bench, tmp_path: Path) -> None:
    command = [BENCH, "run", "--gpu", "h200", "--policy", "v1", "--workload", "sharegpt", "--requests", "100000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        wait_for_completed(process, tmp_path)
        process.kill()
    (partial,) = tmp_path.glob("runs/*/*/*/*/*.partial")
    refused = bench("show", str(partial))
    assert refused.code == 2
    assert "bench recover" in refused.err
    assert "not finished" in bench("list").err
    assert bench("recover", str(partial)).code == 0
    (directory,) = tmp_path.glob("runs/*/*/*/*/*")
    run = bench("show", str(directory), "--json").json["runs"][0]
    assert run["status"] == "interrupted"
    assert run["counts"]["completed"] > 0


def test_a_full_disk_is_one_line_and_loses_nothing(bench: Bench, tmp_path: Path) -> None:
    result = bench(
        "run", "--gpu", "h200", "--policy", "v1", "--workload", "sharegpt", "--requests", "60000", limit_bytes=1_500_000
    )
    assert result.code == 3, result
    assert "bench recover" in result.err
    (partial,) = tmp_path.glob("runs/*/*/*/*/*.partial")
    assert bench("recover", str(partial)).code == 0
    (directory,) = tmp_path.glob("runs/*/*/*/*/*")
    assert bench("show", str(directory), "--json").json["runs"][0]["counts"]["completed"] > 0


def test_an_out_that_cannot_be_written_is_said(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    result = bench(*RUN, "--policy", "v1", "--out", "taken")
    assert result.code == 2
    assert "taken" in result.err


def test_max_duration_ends_sending_and_the_run_is_whole(bench: Bench) -> None:
    result = bench(*RUN, "--policy", "v1", "--max-duration", "2", "--json")
    run = result.json["runs"][0]
    assert run["status"] == "complete"
    assert 200 <= run["counts"]["requests"] < 300
    assert run["counts"]["completed"] == run["counts"]["requests"]
    assert not any("trace" in reason for reason in run["verdict"]["reasons"])


def test_a_verdict_asked_for_sets_the_exit_code(bench: Bench) -> None:
    result = bench(*RUN, "--policy", "v1", "--kv-tokens", "400", "--require-verdict", "VALID")
    assert result.code == 1
    assert "not VALID" in result.err


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT and /dev/full are Linux's")
def test_standard_output_that_is_full_is_no_traceback(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([BENCH, "policies"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


TALK = ("run", "--gpu", "h200", "--policy", "v1", "--workload", "wildchat:history=true", "--requests", "300")


def test_conversations_wait_for_their_answers(bench: Bench, tmp_path: Path) -> None:
    for arrival in (("--rate", "20"), ("--concurrency", "8")):
        result = bench(*TALK, *arrival, "--sessions", "--think-time", "2", "--json")
        assert result.code == 0, result.err
        rows = pq.read_table(tmp_path / result.json["runs"][0]["dir"] / "requests.parquet").to_pylist()
        rows.sort(key=lambda row: (row["session"], row["turn"]))
        pairs = [(a, b) for a, b in pairwise(rows) if a["session"] == b["session"]]
        assert len(pairs) > 200
        assert all(b["due_s"] == pytest.approx(a["done_s"] + 2, abs=1e-8) for a, b in pairs)
        assert all(row["cached_tokens"] is None for row in rows)


def test_a_prefix_cache_finds_what_turns_share_and_is_held_to_what_was_declared(bench: Bench, tmp_path: Path) -> None:
    talk = (*TALK, "--rate", "20", "--sessions", "--json")
    plain, cached = bench(*talk).json["runs"][0], bench(*talk, "--prefix-caching").json["runs"][0]
    assert cached["metrics"]["ttft_s"]["mean"] < plain["metrics"]["ttft_s"]["mean"]
    rows = pq.read_table(tmp_path / cached["dir"] / "requests.parquet").to_pylist()
    share = sum(row["cached_tokens"] for row in rows) / sum(row["prompt_tokens"] for row in rows)
    told = json.loads((tmp_path / cached["dir"] / "run.json").read_text())["prefix_cache"]
    assert told["observed"] == pytest.approx(share)
    assert told["declared"] is None
    assert share > 0.5
    assert any("prefix cache: " in note for note in cached["notes"])
    for declared, level in ((share, "VALID"), (share - 0.2, "INVALID")):
        run = bench(*talk, f"--prefix-caching={declared:.3f}").json["runs"][0]
        assert (run["verdict"]["level"], "prefix-cache" in str(run["verdict"])) == (level, level == "INVALID")


def test_sessions_and_prefixes_that_cannot_be_had_are_refused(bench: Bench) -> None:
    for options, said in (
        (("--workload", "wildchat", "--sessions", "--prefix-caching"), "history=true"),
        (("--workload", "synthetic:mu_l=9", "--sessions"), "this trace has none"),
        (("--workload", "sharegpt", "--think-time", "1"), "--sessions"),
        (("--workload", "sharegpt", "--prefix-caching=2"), "--prefix-caching"),
        (("--workload", "sharegpt", "--url", "http://127.0.0.1:9", "--prefix-caching"), "has its own setting"),
        (("--workload", "sharegpt", "--engine", "tokenstep", "--sessions"), "--sessions"),
    ):
        result = bench("run", "--gpu", "h200", "--policy", "fcfs", "--requests", "50", *options)
        assert result.code == 2, result
        assert said in result.err
        assert len(result.err.strip().splitlines()) <= 2, result.err
