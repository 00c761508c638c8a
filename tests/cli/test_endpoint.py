"""`bench run --url` against the mock server, as a user drives a server that runs already."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.commands import BENCH, Bench
from tests.support.dataset_files import lmsys_rows, lmsys_schema, write_parquet
from tests.support.models import CHAT, write_model

Serve = Callable[..., tuple[str, subprocess.Popen[str]]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts mock servers on free ports and ends them with the test."""
    with ExitStack() as stack:

        def start(*options: str) -> tuple[str, subprocess.Popen[str]]:
            return stack.enter_context(_server(tmp_path, options))

        yield start


@contextmanager
def _server(directory: Path, options: tuple[str, ...]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [BENCH, "mock-server", "--port", "0", "--ttft", "5", "--itl", "1", *options]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        try:
            yield address.group(), process
        finally:
            process.terminate()


RUN = ("run", "--workload", "sharegpt:output_cap=8", "--requests", "60", "--concurrency", "10")


def test_a_server_is_driven_and_measured(bench: Bench, serve: Serve, tmp_path: Path) -> None:
    url, _ = serve("--log", "server.csv")
    result = bench(*RUN, "--url", url, "--json")
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
    result = bench(*RUN, "--url", url, "--repeat", "2", "--processes", "2", "--json")
    assert result.code == 0, result.err
    assert [run["repeat"] for run in result.json["runs"]] == [0, 1]


def test_failures_have_their_names_and_make_the_run_invalid(bench: Bench, serve: Serve, tmp_path: Path) -> None:
    url, _ = serve("--fail-every", "5", "--fail-kind", "mix")
    result = bench(*RUN, "--url", url, "--warmup", "0", "--json")
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


def test_a_server_that_dies_leaves_a_failed_run_with_what_it_had(bench: Bench, serve: Serve, tmp_path: Path) -> None:
    url, server = serve()
    command = [BENCH, "run", "--url", url, "--workload", "sharegpt:output_cap=8", "--requests", "100000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not any(path.stat().st_size > 10_000 for path in tmp_path.glob("runs/*/*/*/*/*.partial/requests.arrows")):
            assert process.poll() is None
        server.kill()
        _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "Traceback" not in err
    (directory,) = tmp_path.glob("runs/*/*/*/*/*")
    run = bench("show", str(directory), "--json").json["runs"][0]
    assert run["status"] == "failed"
    assert run["counts"]["completed"] > 0


@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGINT,),
        (signal.SIGTERM,),
        (signal.SIGHUP,),
        (signal.SIGINT, signal.SIGINT),
        # A shell that closes passes the hang-up on, and the kernel sends another when the shell ends.
        (signal.SIGHUP, signal.SIGHUP),
    ],
)
def test_a_stopped_run_keeps_what_was_measured(
    bench: Bench, serve: Serve, tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    url, _ = serve()
    command = [BENCH, "run", "--url", url, "--workload", "sharegpt:output_cap=8", "--requests", "100000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not any(path.stat().st_size > 10_000 for path in tmp_path.glob("runs/*/*/*/*/*.partial/requests.arrows")):
            assert process.poll() is None
        for one in signals:
            process.send_signal(one)
            # Two of a kind at once are one to the kernel.
            time.sleep(0.05)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    (directory,) = tmp_path.glob("runs/*/*/*/*/*")
    if directory.name.endswith(".partial"):
        # The second signal cuts the writing of the tables short; the line says what mends it.
        assert signals == (signal.SIGINT, signal.SIGINT)
        assert f"bench recover {directory.relative_to(tmp_path)}" in err.replace("\n", "")
        assert bench("recover", str(directory)).code == 0
        (directory,) = tmp_path.glob("runs/*/*/*/*/*")
    run = bench("show", str(directory), "--json").json["runs"][0]
    assert run["status"] == "interrupted"
    assert run["counts"]["completed"] > 0


def test_a_terminal_that_closes_ends_the_run_as_ctrl_c_does(bench: Bench, serve: Serve, tmp_path: Path) -> None:
    url, _ = serve()
    command = [BENCH, "run", "--url", url, "--workload", "sharegpt:output_cap=8", "--requests", "100000"]
    ours, its = os.openpty()
    os.set_blocking(ours, False)
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - there are no threads here
    ) as process:
        os.close(its)
        while not any(path.stat().st_size > 10_000 for path in tmp_path.glob("runs/*/*/*/*/*.partial/requests.arrows")):
            assert process.poll() is None
            # A terminal that nobody reads stops whoever writes to it.
            with suppress(BlockingIOError):
                os.read(ours, 1 << 16)
        os.close(ours)
        assert process.wait(120) == 130
    (run,) = bench("list", "--json").json["runs"]
    assert run["status"] == "interrupted"
    assert run["counts"]["completed"] > 0


def test_a_key_comes_from_the_environment_and_goes_nowhere_else(
    bench: Bench, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = serve()
    monkeypatch.setenv("MY_SERVER_PASSPHRASE", "sesame-open-wide")
    result = bench(*RUN, "--url", url, "--key-env", "MY_SERVER_PASSPHRASE")
    assert result.code == 0, result.err
    assert "sesame" not in result.out + result.err
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"sesame-open-wide" not in path.read_bytes(), path
    assert bench(*RUN, "--url", url, "--key-env", "NOT_SET_AT_ALL").code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--url", "http://127.0.0.1:9", "--ready-timeout", "0"), "not ready"),
        (("--url", "ftp://x"), "--url"),
        (("--engine", "endpoint"), "needs --url"),
        (("--engine", "simulated", "--url", "http://127.0.0.1:9"), "--url goes with"),
    ],
)
def test_what_is_wrong_with_an_endpoint_is_said(bench: Bench, options: tuple[str, ...], said: str) -> None:
    result = bench(*RUN, *options)
    assert result.code == 2, result
    assert said in result.err
    assert len(result.err.splitlines()) == 1


def test_one_server_is_one_policy(bench: Bench, serve: Serve) -> None:
    url, _ = serve()
    result = bench(*RUN, "--url", url, "--policy", "a", "--policy", "b")
    assert result.code == 2
    assert "one --policy" in result.err


def test_doctor_tells_what_this_machine_can_drive(bench: Bench) -> None:
    found = bench("doctor", "--json").json
    assert found["events_per_s"] > 0
    assert found["streams"] > 0
    assert [level["failed"] for level in found["levels"]] == [0, 0, 0]
    assert found["open_loop"]["send_lag_p99_s"] > 0


def test_the_data_sets_own_text_is_sent(bench: Bench, serve: Serve, tmp_path: Path) -> None:
    turns = [{"from": "human", "value": f"Question {i}, please?"} for i in range(3)]
    answers = [{"from": "gpt", "value": "An answer of some words."}] * 3
    record = {"id": "a", "conversations": [turn for pair in zip(turns, answers, strict=True) for turn in pair]}
    (tmp_path / "s.json").write_text(json.dumps([record]))
    url, _ = serve("--tokenizer", "qwen")
    workload = f"sharegpt:path={tmp_path / 's.json'},tokenizer=qwen"
    for api in ("completions", "chat"):
        result = bench("run", "--url", url, "--workload", workload, "--prompts", "dataset", "--api", api, "--json")
        assert result.code == 0, result.err
        (run,) = result.json["runs"]
        assert run["counts"]["completed"] == 3
        if api == "completions":
            assert not any("another length" in note for note in run["notes"]), run["notes"]
    chats = write_parquet(tmp_path / "l.parquet", lmsys_schema(), lmsys_rows(3, seed=8))
    workload = f"lmsys:path={chats},tokenizer=qwen,forced=4"
    result = bench(
        "run", "--url", url, "--workload", workload, "--prompts", "dataset", "--api", "completions", "--json"
    )
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert run["counts"]["completed"] == run["counts"]["requests"] >= 3
    assert not any("another length" in note for note in run["notes"]), run["notes"]
    refused = bench("run", "--url", url, "--workload", f"{workload},history=true", "--prompts", "dataset")
    assert refused.code == 2
    assert "leave out history=true, or give template=true" in refused.err
    refused = bench("run", "--url", url, "--workload", workload, "--prompts", "dataset", "--sessions")
    assert refused.code == 2
    assert "take wildchat or lmsys with template=true" in refused.err
    refused = bench("run", "--url", url, "--workload", "lmsys", "--prompts", "dataset")
    assert refused.code == 2
    assert "lmsys has no text here: give lmsys:path=FILE,tokenizer=…" in refused.err
    refused = bench("run", "--url", url, "--workload", "sharegpt", "--prompts", "dataset")
    assert refused.code == 2
    assert "sharegpt:path=FILE" in refused.err


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_conversation_is_sent_as_the_models_template_renders_it(
    bench: Bench, serve: Serve, tmp_path: Path, api: str
) -> None:
    model = write_model(tmp_path / "model", CHAT)
    talks = list(lmsys_rows(40, seed=8))
    chats = write_parquet(tmp_path / "l.parquet", lmsys_schema(), talks)
    workload = f"lmsys:path={chats},tokenizer={model},output_cap=4,min_turns=2,template=true"
    url, server = serve("--tokenizer", str(model), "--log", "server.csv")
    sent = ("run", "--url", url, "--workload", workload, "--prompts", "dataset", "--api", api, "--sessions")
    result = bench(*sent, "--concurrency", "3", "--json")
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert run["counts"]["completed"] == run["counts"]["requests"] >= 20
    rows = pq.read_table(tmp_path / run["dir"] / "requests.parquet").to_pylist()
    by_turn = sorted((row["session"], row["turn"], row) for row in rows)
    for (session, turn, row), (after, later, following) in pairwise(by_turn):
        if session == after:
            assert later == turn + 1
            assert following["prompt_tokens"] > row["prompt_tokens"] + row["output_tokens"]
            assert following["sent_s"] >= row["done_s"], "a turn waits for the answer before it"
    assert any("the data set's own earlier answers" in note for note in run["notes"])
    # What came in, by the server's own count: bytes, 1 a mark. It has no template, and puts <s> before a chat.
    expected = []
    for turns in (talk["conversation"] for talk in talks if len(talk["conversation"]) >= 4):
        for end in range(1, len(turns), 2):
            said = [one["content"][: 4 if one["role"] == "assistant" else None] for one in turns[:end]]
            if api == "chat":
                expected.append(sum(map(len, said)) + len(said))
            else:
                expected.append(sum(len(one.strip()) + 3 for one in said) + 2)
    server.terminate()
    server.wait(60)
    with (tmp_path / "server.csv").open() as log:
        came = [int(row["prompt_tokens"]) for row in csv.DictReader(log)]
    assert sorted(came[-len(expected) :]) == sorted(expected)
    assert any("another length" in note for note in run["notes"]) == (api == "chat"), run["notes"]


def test_when_the_server_dies_between_repeats_what_was_measured_is_shown(
    bench: Bench, serve: Serve, tmp_path: Path
) -> None:
    url, server = serve()
    command = [BENCH, *RUN, "--url", url, "--repeat", "500"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while len(list(tmp_path.glob("runs/*/*/*/*/*-r0"))) == 0:
            assert process.poll() is None
        server.kill()
        out, err = process.communicate(timeout=120)
    assert process.returncode in (2, 3), err
    assert "Traceback" not in err
    assert "-r0" in out, "the finished repeat is in the report"
    assert bench("list").code == 0


def test_a_run_in_which_nothing_succeeds_fails_and_says_why(bench: Bench, serve: Serve) -> None:
    url, _ = serve("--max-model-len", "2")
    result = bench(*RUN, "--url", url, "--warmup", "0")
    assert result.code == 3
    assert "http_400" in result.err
    (line,) = bench("list").out.splitlines()
    assert line.startswith("INVALID")


def test_a_duration_that_ends_the_sending_is_told(bench: Bench, serve: Serve) -> None:
    url, _ = serve()
    (run,) = bench(*RUN, "--url", url, "--max-duration", "0.05", "--json").json["runs"]
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
    result = bench(*RUN, "--url", url, *options)
    assert result.code == 2, result
    assert said in result.err


def test_the_mock_server_says_nothing_of_clients_that_leave(bench: Bench, tmp_path: Path) -> None:
    command = [BENCH, "mock-server", "--port", "0", "--itl", "50", "--log", "server.csv"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = re.search(r"http://\S+", server.stdout.readline())
        assert url is not None
        bench(*RUN, "--url", url.group(), "--timeout", "0.2", "--warmup", "0")
        server.terminate()
        _, err = server.communicate(timeout=60)
    assert err == ""
    assert server.returncode == 0
