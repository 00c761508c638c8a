"""Publishing a run: the same numbers at its new place, and nothing of the machine's own places."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.published import publish as publishing
from harness.published.check import check
from harness.published.publish import publish
from harness.runs.run import find_runs, load_run
from tests.support.runfactory import toy_run, write_run, write_toy


def test_a_published_run_has_the_same_numbers_and_no_place_of_the_machine(tmp_path: Path) -> None:
    path = write_run(tmp_path / "runs", *toy_run())
    manifest = json.loads((path / "run.json").read_text())
    command = [f"{tmp_path}/env/bin/python", "-m", "vllm", "--model", f"{tmp_path}/models/tiny", "--port", "1"]
    manifest["provenance"]["engine_command"] = command
    manifest["notes"] = [f"written to {path}/steps.log by {os.getcwd()}"]
    (path / "run.json").write_text(json.dumps(manifest))
    (path / "engine.log").write_text(f"{tmp_path}/env/lib/x.py:3: warning\nmodel={tmp_path}/models/tiny\n")
    (path / "metrics.jsonl").write_text("{}")
    results = tmp_path / "results"

    one = publish(path, results)

    assert one.left_out == ("metrics.jsonl",)
    assert one.masked == 6
    there = load_run(one.path)
    assert there.spec == load_run(path).spec
    assert there.summary == load_run(path).summary
    assert there.requests().equals(load_run(path).requests())
    assert there.manifest["provenance"]["engine_command"][0] == "ENGINE/bin/python"
    assert there.manifest["notes"] == [f"written to RUN/{path.name}/steps.log by HERE"]
    assert (one.path / "engine.log").read_text() == "ENGINE/lib/x.py:3: warning\nmodel=MODELS/tiny\n"
    for file in ("run.json", "engine.log"):
        assert str(tmp_path) not in (one.path / file).read_text()
    with pytest.raises(UserError, match="there already: nothing published is ever overwritten"):
        publish(path, results)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "runs", policy="v1", n=60)


def whole(results: Path) -> list[Path]:
    """The runs published, each of which passes the check; and nothing besides lies there."""
    found = check(results)
    assert found.problems == ()
    return find_runs(results)


# Publishes the runs named while others do so too; says how each attempt ended.
PUBLISHER = """
import sys
from pathlib import Path
from harness.published.publish import AlreadyPublished, publish
results, *paths = map(Path, sys.argv[1:])
said = set()
for path in paths:
    try:
        publish(path, results)
        said.add("published")
    except AlreadyPublished:
        said.add("already")
    except Exception as error:
        said.add(repr(error))
print(*sorted(said), sep="\\n")
"""


def test_three_publishers_at_once_leave_whole_runs_and_show_no_error(tmp_path: Path) -> None:
    paths = [write_toy(tmp_path / "runs", policy="v1", n=20, seed=seed) for seed in range(8)]
    for number in range(2):
        results = tmp_path / f"results{number}"
        words = [sys.executable, "-c", PUBLISHER, str(results), *map(str, paths)]
        publishers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        said = {line for one in publishers for line in one.communicate()[0].splitlines()}
        assert said <= {"published", "already"}
        assert len(whole(results)) == len(paths)


@pytest.mark.parametrize("name", ["engine.log", "requests.parquet", "steps.parquet", "summary.json", "run.json"])
def test_no_file_is_read_through_a_link_or_waited_for(run: Path, tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes((run / name).read_bytes() if (run / name).exists() else b"SECRETCANARY")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    with pytest.raises(UserError, match=f"{name}: no plain file"):
        publish(run, tmp_path / "results")
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(UserError, match=f"{name}: (no plain|not a regular) file|no run directory"):
        publish(run, tmp_path / "results")
    assert not list((tmp_path / "results").rglob("*"))


@pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet", "summary.json"])
def test_a_run_that_is_not_whole_is_not_published(run: Path, tmp_path: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(UserError, match=f"{name}: not there: only a whole run is published"):
        publish(run, tmp_path / "results")


def test_nothing_is_written_through_a_link(run: Path, tmp_path: Path) -> None:
    results, victim = tmp_path / "results", tmp_path / "victim"
    victim.mkdir()
    (victim / "keep").write_text("keep")
    results.mkdir()
    (results / "l40s").symlink_to(victim)
    with pytest.raises(UserError, match="l40s: a link, no directory"):
        publish(run, results)
    (results / "l40s").unlink()
    (results / "l40s").write_text("")
    with pytest.raises(UserError, match="l40s: a file, no directory"):
        publish(run, results)
    (results / "l40s").unlink()
    one = publish(run, results).path
    one.rename(tmp_path / "away")
    # What a publisher that was killed left, and a link of that name.
    for left in ("abc", "def"):
        one.with_name(f"{one.name}.{left}{publishing.PUBLISHING}").mkdir()
    one.with_name(f"{one.name}.ghi{publishing.PUBLISHING}").symlink_to(victim)
    publish(run, results)
    assert whole(results) == [one]
    (tmp_path / "linked").symlink_to(results)
    with pytest.raises(UserError, match="there already"):
        publish(run, tmp_path / "linked")
    one.rename(tmp_path / "again")
    one.symlink_to(victim)
    with pytest.raises(UserError, match="there already"):
        publish(run, results)
    assert [(path.name, path.read_text()) for path in victim.iterdir()] == [("keep", "keep")]


@pytest.mark.parametrize("place", range(1, 16))
def test_wherever_a_disk_is_full_the_run_is_there_whole_or_not_at_all(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    results, calls = tmp_path / "results", 0
    (run / "engine.log").write_text("a line")

    def failing(real: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == place:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **named)

        return call

    with monkeypatch.context() as patched:
        for module, name in ((os, "fsync"), (os, "rename"), (Path, "open"), (Path, "mkdir"), (Path, "replace")):
            patched.setattr(module, name, failing(getattr(module, name)))
        try:
            publish(run, results)
            said = "No space left on device"
        except UserError as error:
            said = str(error)
    assert "No space left on device" in said
    assert len(said.splitlines()) == 1
    assert not list(results.rglob("*.publishing*"))
    there = find_runs(results) if results.is_dir() else []
    assert bool(there) == (calls < place or "is there, but its disk tells of a fault" in said)
    if not there:
        publish(run, results)
    assert len(whole(results)) == 1


@pytest.mark.parametrize(
    "command",
    [
        ["/x"],
        ["/q\\\\/x/y", "--model", "/q\\\\"],
        [5, None],
        ["/a/b/c", "--model", "/"],
        ['/a"/b/c'],
        ["/a\\0/b/c"],
        {},
    ],
)
def test_an_odd_engine_command_is_no_fault(run: Path, tmp_path: Path, command: Any) -> None:
    manifest = json.loads((run / "run.json").read_text())
    manifest["provenance"] |= {"engine_command": command, "api": "/api/x", "more": [{"/a": "/a/b"}]}
    (run / "run.json").write_text(json.dumps(manifest))
    there = load_run(publish(run, tmp_path / "results").path)
    assert there.manifest["provenance"]["api"] == "/api/x"
    assert there.spec == load_run(run).spec
