"""`bench grid`: each cell once, whatever happens in between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import BENCH, Bench, Serve
from tests.support.grids import SMALL, assert_same_grids, runs_in
from tests.support.partial_runs import wait_until

# Eight cells.
FEW = SMALL.replace('["l40s", "h200"]', '"l40s"')


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "grid.toml").write_text(SMALL)
    return tmp_path


def test_every_cell_runs_once_and_a_second_command_finds_nothing_to_do(bench: Bench, small: Path) -> None:
    planned = bench("grid", "grid.toml", "--out", "runs", "--dry-run")
    assert planned.code == 0, planned.err
    assert len(planned.out.splitlines()) == 16
    assert "16 cells, 16 to run: about " in planned.err
    assert not (small / "runs").exists()
    first = bench("grid", "grid.toml", "--out", "runs")
    assert first.code == 0, first.err
    assert "16 cells: 0 finished before, 16 to run" in first.err
    assert "16 of 16 cells finished: 16 now" in first.out
    assert len(runs_in(small / "runs")) == 16
    again = bench("grid", "grid.toml", "--out", "runs", "--json")
    assert (again.code, again.json["before"], again.json["done"]) == (0, 16, 0)
    assert "16 cells: 16 finished before, 0 to run (--again runs them all again" in again.err
    assert "16 cells, 16 to run: about" in bench("grid", "grid.toml", "--out", "runs", "--again", "--dry-run").err
    status = bench("grid", "status", "--out", "runs")
    assert (status.code, status.out) == (0, "finished: 16 of 16 cells finished, 0 failed, 0 left\n")
    # What a command makes without a grid is the same run.
    single = bench(
        "run", "--gpu", "h200", "--policy", "v1", "--workload", "lmsys", "--requests", "60", "--concurrency", "8",
        "--slots", "16", "--engine", "simulated", "--alone", "--out", "single", "--json",
    )  # fmt: skip
    assert single.json["runs"][0]["digest"] in runs_in(small / "runs")
    # More values of an axis are more cells; those that are there stay.
    (small / "grid.toml").write_text(SMALL.replace("[8, 16]", "[8, 16, 24]"))
    more = bench("grid", "grid.toml", "--out", "runs", "--json")
    assert (more.json["before"], more.json["done"]) == (16, 8)
    assert len(bench("list", "runs", "--json").json["runs"]) == 24


def test_a_grid_goes_on_from_a_store_on_any_machine(bench: Bench, small: Path) -> None:
    one_repeat = SMALL.replace("[8, 16]", "8").replace("repeat = 2", "repeat = 1")
    (small / "grid.toml").write_text(one_repeat)
    url = f"file://{small}/store"
    first = bench("grid", "grid.toml", "--out", url)
    assert first.code == 0, first.err
    assert f"bench site build --results {url}, bench compare and bench list read what is there" in first.out
    assert bench("grid", "status", "--out", url).out == "finished: 4 of 4 cells finished, 0 failed, 0 left\n"
    # Another machine has nothing of what is kept here.
    shutil.rmtree(small / "cache" / "stores")
    (small / "grid.toml").write_text(one_repeat.replace('"l40s", ', '"l40s", "b300", '))
    other = bench("grid", "grid.toml", "--out", url, "--json")
    assert (other.json["before"], other.json["done"]) == (4, 2)
    listed = bench("list", url, "--json")
    assert len({run["digest"] for run in listed.json["runs"]}) == len(listed.json["runs"]) == 6
    assert not (small / "file:").exists()


def test_a_failing_cell_stops_no_other_and_is_told_at_the_end(bench: Bench, small: Path) -> None:
    (small / "grid.toml").write_text(
        SMALL.replace('"ebplus"', '"eb:k=15", "eb:k=17"').replace("repeat = 2", "repeat = 1")
    )
    result = bench("grid", "grid.toml", "--out", "runs")
    assert result.code == 3
    assert "8 of 12 cells finished: 8 now" in result.out
    assert "failed (4): " in result.out
    assert "slots" in result.out
    assert "--retry-failed runs them again" in result.out
    status = bench("grid", "status", "--out", "runs", "--json")
    assert (status.code, status.json["finished"], status.json["failed"], status.json["left"]) == (3, 8, 4, 0)
    waiting = bench("grid", "grid.toml", "--out", "runs", "--json")
    assert (waiting.code, waiting.json["done"], waiting.json["failed"]) == (3, 0, 4)
    retried = bench("grid", "grid.toml", "--out", "runs", "--retry-failed", "--json")
    assert (retried.code, retried.json["before"], retried.json["failed"]) == (3, 8, 4)
    assert len(runs_in(small / "runs")) == 8


def test_cells_that_cannot_be_had_are_named_before_anything_runs(bench: Bench, small: Path) -> None:
    (small / "grid.toml").write_text(SMALL.replace("slots = 16", "slots = [16, 64]\ntoken_budget = 32"))
    planned = bench("grid", "grid.toml", "--dry-run")
    assert planned.err.count("--token-budget 32 is below --slots 64") == 4
    result = bench("grid", "grid.toml", "--json")
    assert (result.code, result.json["cells"], result.json["cannot_be_had"], result.json["done"]) == (3, 16, 16, 16)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no option 'x'"),
        ('gpu = "l40"', "no GPU named 'l40'; did you mean l40s"),
        ('policy = "ebpluss"', "ebplus"),
        ('workload = "lmsis"', "lmsys"),
        (
            f"seed = {list(range(40))}\nslots = {list(range(16, 816))}\nrepeat = 40",
            "1,280,000 cells, more than 1,000,000",
        ),
    ],
)
def test_a_grid_that_cannot_be_meant_is_refused_in_a_line(bench: Bench, tmp_path: Path, text: str, said: str) -> None:
    values = {"gpu": '"l40s"', "policy": '"v1"', "workload": '"lmsys"'}
    lines = [f"{name} = {value}" for name, value in values.items() if not text.startswith(name)]
    (tmp_path / "grid.toml").write_text("\n".join([*lines, text or "x = 1"]))
    result = bench("grid", "grid.toml")
    assert result.code == 2
    assert said in result.err
    assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def started(directory: Path, out: str) -> subprocess.Popen[str]:
    """A grid under way, in a process group of its own."""
    return subprocess.Popen(
        [BENCH, "grid", "grid.toml", "--out", out, "--jobs", "2"],
        cwd=directory, env=os.environ | {"COLUMNS": "120"}, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def test_ctrl_c_ends_readably_and_the_same_command_goes_on(bench: Bench, small: Path) -> None:
    (small / "grid.toml").write_text(FEW.replace("requests = 60", "requests = 4000"))
    with started(small, "runs") as process:
        wait_until(lambda: list((small / "runs").rglob("*.partial/run.json")), process)
        running = bench("grid", "status", "--out", "runs", "--json")
        assert (running.code, running.json["state"]) == (1, "running")
        refused = bench("grid", "grid.toml", "--out", "runs")
        assert refused.code == 2
        assert "another grid works there" in refused.err
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate()
        assert process.returncode == 130, err
        assert "Traceback" not in err
    stopped = bench("grid", "status", "--out", "runs", "--json")
    assert stopped.json["state"] == "stopped"
    assert stopped.json["left"] > 0
    resumed = bench("grid", "grid.toml", "--out", "runs", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["before"] + resumed.json["done"] == len(runs_in(small / "runs")) == 8


def test_kill_9_at_any_time_leaves_what_a_resume_ends_as_if_nothing_had_been(bench: Bench, small: Path) -> None:
    """`make soak` has 100 rounds; a round kills after the next one to three runs have begun."""
    (small / "grid.toml").write_text(FEW)
    rounds = int(os.environ.get("BENCH_GRID_KILLS", "2"))
    assert bench("grid", "grid.toml", "--out", "whole").code == 0
    for number in range(rounds):
        out = small / f"runs{number % 5}"
        before = len(list(out.rglob("run.json")))
        with started(small, out.name) as process:
            wait_until(lambda: len(list(out.rglob("run.json"))) > before + number % 3, process)  # noqa: B023
            process.kill()
        if number % 5 == 4 or number == rounds - 1:
            for place in small.glob("runs?"):
                resumed = bench("grid", "grid.toml", "--out", place.name)
                assert resumed.code == 0, resumed.err
                assert_same_grids(small / "whole", place)
        if number % 10 == 9:
            for place in small.glob("runs?"):
                subprocess.run(["rm", "-r", str(place)], check=True)


def test_the_first_policy_runs_twice_where_an_a_a_is_asked_for(bench: Bench, small: Path, serve: Serve) -> None:
    address, _ = serve()
    (small / "grid.toml").write_text(
        f'url = "{address}"\nworkload = "synthetic:mu_l=20,mu_o=4"\nrequests = 20\nconcurrency = 5\nrepeat = 2\n'
        "vocabulary = 1000\nwarmup = 0\naa = true\n"
    )
    result = bench("grid", "grid.toml", "--out", "runs", "--json")
    assert (result.code, result.json["cells"]) == (0, 4), result.err
    first, second = runs_in(small / "runs"), runs_in(small / "runs-aa")
    assert first.keys() == second.keys()
    assert len(first) == 2
    assert bench("grid", "grid.toml", "--out", "runs", "--json").json["before"] == 4
    compared = bench("compare", "runs", "runs-aa", "--json")
    assert compared.code == 0, compared.err
    assert {len(compared.json[arm]) for arm in "ab"} == {2}
