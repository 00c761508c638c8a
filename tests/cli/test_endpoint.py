"""`bench run --url` against the mock server, as a user drives a server that runs already."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.commands import BENCH, ENDPOINT_RUN, Bench, Serve


def test_a_server_is_driven_and_measured(bench: Bench, serve: Serve, tmp_path: Path) -> None:
    url, _ = serve("--log", "server.csv")
    result = bench(*ENDPOINT_RUN, "--url", url, "--json")
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert (run["engine"], run["kind"], run["gpu"], run["policy"]) == ("endpoint", "measured", "unknown", "external")
    assert run["model"] == "mock", "what the server says it serves"
    assert run["counts"]["requests"] == run["counts"]["completed"] == 60
    assert run["counts"]["steps"] in (0, None), "nothing is known of its steps"
    assert run["metrics"]["ttft_s"]["count"] == 60
    directory = tmp_path / run["dir"]
    rows = pq.read_table(directory / "requests.parquet").to_pylist()
    assert all(row["output_tokens"] == row["expected_output_tokens"] for row in rows)
    assert all(len(row["token_gaps_s"]) == row["output_tokens"] - 1 for row in rows)
    warmup = pq.read_table(directory / "warmup.parquet").to_pylist()
    assert [row["id"] for row in warmup] == [f"warmup-{i}" for i in range(4)] or len(warmup) == 4
    samples = [json.loads(line)["samples"] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert len(samples) >= 2
    assert "vllm:num_requests_running" in (directory / "metrics-start.txt").read_text()
    manifest = json.loads((directory / "run.json").read_text())
    assert manifest["client"]["connections"] >= 10
    assert manifest["spec"]["client"]["api"] == "completions"


def test_labels_and_open_loop_and_chat(bench: Bench, serve: Serve) -> None:
    url, _ = serve()
    result = bench(
        "run", "--url", url, "--gpu", "l40s", "--policy", "mine v2", "--workload", "synthetic:mu_l=40,mu_o=6",
        "--requests", "30", "--rate", "100", "--api", "chat", "--tokenizer", "qwen", "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert (run["gpu"], run["policy"]) == ("l40s", "mine v2")
    assert run["counts"]["completed"] == 30
    assert run["metrics"]["send_lag_s"]["count"] == 30


def test_repeats_against_a_server(bench: Bench, serve: Serve) -> None:
    url, _ = serve()
    result = bench(*ENDPOINT_RUN, "--url", url, "--repeat", "2", "--processes", "2", "--json")
    assert result.code == 0, result.err
    assert [run["repeat"] for run in result.json["runs"]] == [0, 1]


def test_failures_have_their_names_and_make_the_run_invalid(bench: Bench, serve: Serve, tmp_path: Path) -> None:
    url, _ = serve("--fail-every", "5", "--fail-kind", "mix")
    result = bench(*ENDPOINT_RUN, "--url", url, "--warmup", "0", "--json")
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert run["counts"]["requests"] == 60
    assert run["counts"]["failed"] == 12
    assert run["verdict"]["level"] == "INVALID"
    errors = {
        row["error"].partition(":")[0]
        for row in pq.read_table(tmp_path / run["dir"] / "requests.parquet").to_pylist()
        if row["error"]
    }
    assert len(errors) >= 4, errors
    assert any("by reason" in note for note in run["notes"])


def test_a_key_comes_from_the_environment_and_goes_nowhere_else(
    bench: Bench, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = serve()
    monkeypatch.setenv("MY_SERVER_PASSPHRASE", "sesame-open-wide")
    result = bench(*ENDPOINT_RUN, "--url", url, "--key-env", "MY_SERVER_PASSPHRASE")
    assert result.code == 0, result.err
    assert "sesame" not in result.out + result.err
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"sesame-open-wide" not in path.read_bytes(), path
    assert bench(*ENDPOINT_RUN, "--url", url, "--key-env", "NOT_SET_AT_ALL").code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--url", "http://127.0.0.1:9", "--ready-timeout", "0"), "not ready"),
        (("--url", "ftp://x"), "--url"),
        (("--engine", "endpoint"), "needs --url"),
        (("--engine", "simulated", "--url", "http://127.0.0.1:9"), "--url goes with"),
        (("--drivers", "2"), "--drivers goes with --url"),
    ],
)
def test_what_is_wrong_with_an_endpoint_is_said(bench: Bench, options: tuple[str, ...], said: str) -> None:
    result = bench(*ENDPOINT_RUN, *options)
    assert result.code == 2, result
    assert said in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("policies", [("--policy", "a", "--policy", "b"), ("--policy", "a,b")])
def test_one_server_is_one_policy(policies: tuple[str, ...], bench: Bench) -> None:
    result = bench(*ENDPOINT_RUN, "--url", "http://127.0.0.1:9", *policies)
    assert result.code == 2
    assert "one --policy" in result.err


def test_doctor_tells_what_this_machine_can_drive(bench: Bench) -> None:
    found = bench("doctor", "--rate", "1e6", "--output-tokens", "1000", "--json").json
    assert found["needed"]["processes"] * found["events_per_s"] >= 1e9
    assert found["needed"]["hosts"] == -(-found["needed"]["processes"] // found["cores"])
    assert found["events_per_s"] > 0
    assert found["streams"] > 0
    assert [level["failed"] for level in found["levels"]] == [0, 0, 0]
    assert found["open_loop"]["send_lag_p99_s"] > 0


def test_a_run_in_which_nothing_succeeds_fails_and_says_why(bench: Bench, serve: Serve) -> None:
    url, _ = serve("--max-model-len", "2")
    result = bench(*ENDPOINT_RUN, "--url", url, "--warmup", "0")
    assert result.code == 3
    assert "http_400" in result.err
    (line,) = bench("list").out.splitlines()
    assert line.startswith("INVALID")


def test_a_duration_that_ends_the_sending_is_told(bench: Bench, serve: Serve) -> None:
    url, _ = serve()
    (run,) = bench(*ENDPOINT_RUN, "--url", url, "--max-duration", "0.05", "--json").json["runs"]
    assert any(f"{run['counts']['requests']} of 60" in note for note in run["notes"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tokenizer", "no/such"), "--tokenizer"),
        (("--think-time", "1"), "--sessions"),
        (("--fail-on", "ttft_s>5%"), "two policies"),
        (("--api", "chat"), "--tokenizer PATH"),
    ],
)
def test_options_that_cannot_work_are_refused(bench: Bench, serve: Serve, options: tuple[str, ...], said: str) -> None:
    url, _ = serve()
    result = bench(*ENDPOINT_RUN, "--url", url, *options)
    assert result.code == 2, result
    assert said in result.err


def test_the_mock_server_says_nothing_of_clients_that_leave(bench: Bench, tmp_path: Path) -> None:
    command = [BENCH, "mock-server", "--port", "0", "--itl", "50", "--log", "server.csv"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = re.search(r"http://\S+", server.stdout.readline())
        assert url is not None
        bench(*ENDPOINT_RUN, "--url", url.group(), "--timeout", "0.2", "--warmup", "0")
        server.terminate()
        _, err = server.communicate(timeout=60)
    assert err == ""
    assert server.returncode == 0
