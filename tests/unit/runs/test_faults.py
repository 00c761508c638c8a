"""What survives kill -9, Ctrl-C in the wrong place, and a full disk."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.errors import RunFailed, UserError
from harness.core.files import held
from harness.core.records import REQUESTS, STEPS
from harness.runs import append_log
from harness.runs.run import final_of, find_partials, find_runs, load_run
from harness.runs.writer import RECOVERED, RunWriter, recover
from tests.support.commands import BENCH
from tests.support.disk import file_size_limit
from tests.support.places import ROOT
from tests.support.runfactory import SPEC, batch_of, toy_run

WRITE_FOR_EVER = """
import sys
from pathlib import Path
from harness.core.records import REQUESTS, STEPS
from harness.runs.writer import RunWriter
from tests.support.runfactory import SPEC, batch_of, toy_run
requests, steps = toy_run(40)
writer = RunWriter.create(Path(sys.argv[1]), SPEC, kind="simulated", provenance={})
writer.add_requests(batch_of(REQUESTS, requests[:25]))
writer.add_steps(batch_of(STEPS, steps))
print("written", flush=True)
sys.stdin.read()
"""


def test_what_was_added_survives_kill_9(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        (partial,) = find_partials(tmp_path)
        assert find_runs(tmp_path) == []
        with pytest.raises(UserError, match="still goes on"):
            recover(partial)
        with pytest.raises(UserError, match="bench recover"):
            load_run(partial)
        process.send_signal(signal.SIGKILL)
        process.wait()
    final, changed = recover(partial)
    assert changed
    assert find_partials(tmp_path) == []
    run = load_run(final)
    assert (run.status, run.manifest["reason"], run.level) == ("interrupted", RECOVERED, "INVALID")
    assert run.manifest["counts"]["requests"] == 25
    assert not list(final.glob("*.arrows"))
    assert recover(final) == (final, False)


def _left_behind(out: Path) -> Path:
    """A partial directory as a killed process leaves it: three batches of requests, one of steps."""
    requests, steps = toy_run(30)
    writer = RunWriter.create(out, SPEC, kind="simulated", provenance={})
    for start in (0, 10, 20):
        writer.add_requests(batch_of(REQUESTS, requests[start : start + 10]))
    writer.add_steps(batch_of(STEPS, steps))
    writer.close()
    return writer.partial


@pytest.mark.parametrize("missing", [1, 9, 100, 1000])
def test_half_a_batch_at_the_end_is_cut_off(tmp_path: Path, missing: int) -> None:
    partial = _left_behind(tmp_path)
    log = partial / "requests.arrows"
    log.write_bytes(log.read_bytes()[:-missing])
    final, _ = recover(partial)
    assert load_run(final).requests().num_rows == 20


@pytest.mark.parametrize("size", [0, 3, 200])
def test_a_log_cut_in_its_header_recovers_as_empty(tmp_path: Path, size: int) -> None:
    partial = _left_behind(tmp_path)
    log = partial / "requests.arrows"
    log.write_bytes(log.read_bytes()[:size])
    final, _ = recover(partial)
    run = load_run(final)
    assert run.requests().num_rows == 0
    assert run.level == "INVALID"


def test_a_crash_between_the_tables_and_the_renaming_is_finished(tmp_path: Path) -> None:
    partial = _left_behind(tmp_path)
    append_log.to_parquet(append_log.whole_batches(partial / "steps.arrows", 100), partial / "steps.parquet", STEPS)
    (partial / "steps.arrows").unlink()
    final, _ = recover(partial)
    assert load_run(final).manifest["counts"]["steps"] > 0


def test_recover_takes_the_final_name_too(tmp_path: Path) -> None:
    partial = _left_behind(tmp_path)
    final = partial.with_suffix("")
    with pytest.raises(UserError, match="did not finish"):
        load_run(final)
    assert recover(final) == (final, True)


def test_a_partial_with_a_broken_manifest_is_a_line(tmp_path: Path) -> None:
    partial = _left_behind(tmp_path)
    (partial / "run.json").write_text("{")
    with pytest.raises(UserError, match="cannot be recovered"):
        recover(partial)


def test_a_full_disk_while_running_keeps_every_whole_batch(tmp_path: Path) -> None:
    requests, _ = toy_run(200)
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.add_requests(batch_of(REQUESTS, requests[:50]))
    size = (writer.partial / "requests.arrows").stat().st_size
    with file_size_limit(size + 100), pytest.raises(RunFailed) as failure:
        writer.add_requests(batch_of(REQUESTS, requests[50:]))
    line = str(failure.value)
    assert "\n" not in line
    assert "requests.arrows" in line
    assert "50 requests" in line
    assert f"bench recover {writer.partial}" in line
    assert (writer.partial / "requests.arrows").stat().st_size == size
    final, _ = recover(writer.partial)
    run = load_run(final)
    assert run.requests().num_rows == 50
    assert run.status in ("failed", "interrupted")
    assert run.level == "INVALID"


def test_a_full_disk_at_the_end_keeps_everything(tmp_path: Path) -> None:
    requests, steps = toy_run(200)
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.add_requests(batch_of(REQUESTS, requests))
    writer.add_steps(batch_of(STEPS, steps))
    with file_size_limit(1000), pytest.raises(RunFailed, match="all that was measured is kept"):
        writer.finish()
    assert not list(writer.partial.glob("*.tmp"))
    with file_size_limit(1000), pytest.raises(UserError, match="make room"):
        recover(writer.partial)
    final, _ = recover(writer.partial)
    assert load_run(final).requests().num_rows == 200


def test_dev_full_is_told_apart_from_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    full = os.open("/dev/full", os.O_WRONLY)
    real = os.write
    monkeypatch.setattr(os, "write", lambda _, data: real(full, data))
    with pytest.raises(RunFailed, match="No space left on device"):
        writer.add_steps(batch_of(STEPS, toy_run(10)[1]))
    monkeypatch.undo()
    os.close(full)
    manifest = json.loads((writer.partial / "run.json").read_text())
    assert manifest["status"] == "failed"
    final, _ = recover(writer.partial)
    assert load_run(final).manifest["reason"] == "cannot write steps.arrows: No space left on device"


@pytest.mark.parametrize("name", ["run.json.tmp", "summary.json.tmp", "requests.tmp", "steps.tmp"])
def test_recover_writes_through_no_link(tmp_path: Path, name: str) -> None:
    partial = _left_behind(tmp_path / "runs")
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (partial / name).symlink_to(victim)
    final, changed = recover(partial)
    assert changed
    assert victim.read_text() == "keep"
    assert not [path for path in final.iterdir() if path.is_symlink()]
    (final / "run.json.tmp").symlink_to(victim)
    assert recover(final) == (final, False)
    assert victim.read_text() == "keep"


def test_one_process_at_a_time_finishes_a_run(tmp_path: Path) -> None:
    partial = _left_behind(tmp_path)
    with held(partial), pytest.raises(UserError, match="another bench finishes this run: wait for it"):
        recover(partial)
    words = [BENCH, "recover", str(partial)]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [(*one.communicate(), one.returncode) for one in both]
    assert {code for _, _, code in ended} <= {0, 2}
    assert 0 in {code for _, _, code in ended}
    assert not [err for _, err, _ in ended if "Traceback" in err or "No such file" in err or "fault" in err]
    assert recover(final_of(partial)) == (final_of(partial), False)
