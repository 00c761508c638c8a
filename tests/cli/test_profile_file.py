"""A GPU whose profile is a file of the user's own: the path says where it lies, its label is the name of its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.published.check import check
from harness.runs.run import find_runs, load_run
from tests.support.commands import Bench

PROFILE = (
    'label = "CPU of mine"\naliases = []\n[pairs."me/tiny"]\nkv_tokens = { value = 8192, source = "log" }\n'
    '[pairs."me/tiny".steps]\nbasis = "calibrated"\nsource = "mine"\nflags = []\nalpha_p_s = 0.01\n'
    "beta_p_s_per_token = 1e-4\nalpha_d_s = 0.02\nbeta_d_s_per_request = 1e-3\n"
    '[pairs."me/tiny".mixed]\nform = "additive"\nsource = "none"\nflags = []\n'
)
LOAD = ("--model", "tiny", "--workload", "synthetic:mu_l=64,mu_o=16", "--requests", "50")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "cpu-tiny.toml"
    path.write_text(PROFILE, encoding="utf-8")
    return path


def of(gpu: str, *more: str) -> tuple[str, ...]:
    return ("run", "--engine", "simulated", "--gpu", gpu, *LOAD, "--concurrency", "8", *more)


@pytest.mark.parametrize(
    "asked",
    [
        ("--engine", "simulated", "--policy", "v1,eb,ebplus", "--concurrency", "8"),
        ("--engine", "tokenstep", "--policy", "v1,ljf,isjl:alpha=5", "--slots", "8"),
    ],
)
def test_runs_land_beside_the_profile_that_they_are_of(
    bench: Bench, tmp_path: Path, profile: Path, asked: tuple[str, ...]
) -> None:
    # The last step of `make demo-vllm`, on engines that are done in a moment.
    done = bench("run", "--gpu", "./cpu-tiny.toml", *LOAD, *asked, "--repeat", "1", "--out", ".")
    assert done.code == 0, done.err
    runs = [load_run(path) for path in find_runs(tmp_path)]
    assert len(runs) == 3
    assert {run.path.relative_to(tmp_path).parts[0] for run in runs} == {"cpu-of-mine"}
    assert {run.spec.gpu for run in runs} == {"CPU of mine"}
    assert profile.read_text(encoding="utf-8") == PROFILE


def test_the_place_of_a_profile_decides_nothing_and_its_content_does(
    bench: Bench, tmp_path: Path, profile: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "other.toml"
    moved.write_text(PROFILE, encoding="utf-8")
    changed = tmp_path / "changed.toml"
    changed.write_text(PROFILE.replace("0.02", "0.03"), encoding="utf-8")
    for out, gpu, policy in (("a", "./cpu-tiny.toml", "v1"), ("b", str(moved), "eb:k=4"), ("c", "changed.toml", "v1")):
        assert bench(*of(gpu, "--policy", policy, "--out", out)).code == 0
    same = bench("compare", "a", "b", "--json")
    assert same.code == 0, same.err
    assert list(same.json["differences"]) == ["policy"]
    other = bench("compare", "a", "c")
    assert other.code == 2
    assert "profile: " in other.err
    assert bench("compare", "a", "c", "--allow", "profile,cost_model").code == 0
    both = bench(*of("cpu-tiny.toml,changed.toml", "--policy", "v1"))
    assert both.code == 2
    assert "changed.toml: has the same label as cpu-tiny.toml (CPU of mine): give each profile a label" in both.err


@pytest.mark.parametrize("label", ["", "  ", "m" * 121])
def test_a_label_that_is_no_name_is_refused(bench: Bench, profile: Path, label: str) -> None:
    profile.write_text(PROFILE.replace("CPU of mine", label), encoding="utf-8")
    done = bench(*of("./cpu-tiny.toml", "--policy", "v1"))
    assert done.code == 2
    assert "runs go by it: write 1 to 120 characters" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_run_of_a_profile_is_published_and_replayed_where_the_profile_is(
    bench: Bench, tmp_path: Path, profile: Path
) -> None:
    assert bench(*of("./cpu-tiny.toml", "--policy", "v1,ebplus", "--repeat", "1")).code == 0
    assert bench("publish", "runs").code == 0
    found = bench("site", "check", "--replay")
    assert found.code == 0, found.out
    assert "2 runs checked, 2 of 2 simulated ones run again, no problem" in found.out
    profile.write_text(PROFILE.replace("0.02", "0.03"), encoding="utf-8")
    found = bench("site", "check", "--replay")
    assert found.code == 0
    assert "not run again: the profile cpu-tiny.toml is another than the run's" in found.out.replace("./", "")
    profile.unlink()
    assert "not run again: the profile" in bench("site", "check", "--replay").out
    assert bench("site", "build").code == 0


def test_a_run_of_before_has_a_path_for_a_name_and_lies_under_its_files_name() -> None:
    results = Path(__file__).parents[2] / "results"
    runs = [load_run(path) for path in find_runs(results / "cpu-tiny")]
    assert {run.spec.gpu for run in runs} == {"./cpu-tiny.toml"}
    assert not [one for one in check(results, [results / "cpu-tiny"]).problems if "does not lie where" in one.why]
    assert not [one for one in results.rglob("*.toml*") if one.is_dir()]


def test_prices_of_a_profile_are_those_of_its_file(bench: Bench, profile: Path) -> None:
    price = '[prices.gpu_hour]\nvalue = 1.5\ncurrency = "EUR"\ndate = "2026-11"\nsource = "me"\n'
    profile.write_text(f"{PROFILE}{price}", encoding="utf-8")
    assert bench(*of("./cpu-tiny.toml", "--policy", "v1,ljf", "--lengths", "oracle")).code == 0
    found = bench("profit", "runs", "--prices", "profile", "--price-in", "1/M", "--price-out", "2/M", "--json")
    assert found.code == 0, found.err
    assert json.dumps(found.json).count('"value": 1.5') >= 1


def test_a_profile_may_have_a_comma_in_its_name(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "cpu,tiny.toml").write_text(PROFILE, encoding="utf-8")
    done = bench(*of("cpu,tiny.toml", "--policy", "v1"))
    assert done.code == 0, done.err
