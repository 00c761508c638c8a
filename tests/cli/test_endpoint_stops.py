"""Runs against a server that end early: signals, closed terminals, servers that die. What was measured is kept."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commands import BENCH, ENDPOINT_RUN, Bench, Serve
from tests.support.partial_runs import completed_rows, handled, wait_for_completed, wait_until

# Minutes of answers: a run that is under way when it is stopped, and whose prompts are made in no time.
SLOW = ("--itl", "100")
LONG_RUN = ("run", "--workload", "sharegpt:output_cap=8", "--requests", "2000", "--concurrency", "8")


def test_a_server_that_dies_leaves_a_failed_run_with_what_it_had(bench: Bench, serve: Serve, tmp_path: Path) -> None:
    url, server = serve(*SLOW)
    command = [BENCH, *LONG_RUN, "--url", url]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for_completed(process, tmp_path)
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
    url, _ = serve(*SLOW)
    command = [BENCH, *LONG_RUN, "--url", url]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for_completed(process, tmp_path)
        for one in signals:
            process.send_signal(one)
            # Two of a kind at once are one to the kernel.
            wait_until(lambda signal=one: handled(process, signal), process)  # type: ignore[misc] # a default in a lambda
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
    url, _ = serve(*SLOW)
    command = [BENCH, *LONG_RUN, "--url", url]
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

        def read_on() -> bool:
            # A terminal that nobody reads stops whoever writes to it.
            with suppress(BlockingIOError):
                os.read(ours, 1 << 16)
            return completed_rows(tmp_path) > 0

        wait_until(read_on, process)
        os.close(ours)
        assert process.wait(120) == 130
    (run,) = bench("list", "--json").json["runs"]
    assert run["status"] == "interrupted"
    assert run["counts"]["completed"] > 0


def test_when_the_server_dies_between_repeats_what_was_measured_is_shown(
    bench: Bench, serve: Serve, tmp_path: Path
) -> None:
    url, server = serve()
    command = [BENCH, *ENDPOINT_RUN, "--url", url, "--repeat", "500"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: list(tmp_path.glob("runs/*/*/*/*/*-r0")), process)
        server.kill()
        out, err = process.communicate(timeout=120)
    assert process.returncode in (2, 3), err
    assert "Traceback" not in err
    assert "-r0" in out, "the finished repeat is in the report"
    assert bench("list").code == 0
