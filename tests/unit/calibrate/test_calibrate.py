"""Calibration: constants come back from steps that had them, and what cannot be told is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.calibrate.constants import Calibration, calibrate
from harness.calibrate.fit import fit
from harness.calibrate.profile import document, profile_of, report, write_profile
from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.engines.simulated import Simulated
from harness.profiles.linear import lowest_beta_mb
from harness.profiles.pair import load_pair
from harness.session.one_run import prepare, run
from policies.core import StepCosts
from tests.support.runfactory import SPEC, request, step, write_run

TRUE = StepCosts(0.0047, 5.0e-5, 0.0104, 1.04e-4, 0.006, 6.3e-5, 1.97e-4, 1.0e-5)
CPU = dataclasses.replace(SPEC, gpu="cpu", model="nobody/tiny", engine="vllm")
HOST = {"cpu": "a CPU", "cores": 2}
VLLM = {"engine": "vllm", "engine_version": "0.32.0", "kv_cache_tokens": 40_000, "host": HOST}


def seconds(prefill: int, decodes: int) -> float:
    if not decodes:
        return TRUE.alpha_p_s + TRUE.beta_p_s * prefill
    if not prefill:
        return TRUE.alpha_d_s + TRUE.beta_d_s * decodes
    tokens = prefill + decodes
    return TRUE.alpha_mb_s + TRUE.beta_mb(decodes / tokens) * tokens


def steps_of(
    kinds: str = "pdm", n: int = 1000, noise: float = 0.0, outliers: float = 0.0, seed: int = 0, most: int = 256
) -> list[dict[str, Any]]:
    """`n` steps of each kind with log-normal noise, and a share of outliers 2 to 30 times too long."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    now = 0.0
    for kind in rng.permutation([one for one in kinds for _ in range(n)]):
        prefill = 0 if kind == "d" else int(rng.integers(1, 4000))
        decodes = 0 if kind == "p" else int(rng.integers(1, most + 1))
        took = seconds(prefill, decodes) * rng.lognormal(0, noise)
        took *= rng.uniform(2, 30) if rng.random() < outliers else 1.0
        row = step(now, took, decodes, prefill)
        rows.append(row | {"producing": decodes, "footprint_sum": 300 * decodes})
        now += took
    return rows


def measured(out: Path, steps: list[dict[str, Any]], spec: RunSpec = CPU, kind: str = "measured", **told: Any) -> Path:
    return write_run(out, [request(0)], steps, spec=spec, kind=kind, provenance=VLLM | told)


def all_close(found: StepCosts, tolerance: float, names: tuple[str, ...] = StepCosts.__slots__) -> None:
    for name in names:
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=tolerance), name


def test_constants_come_back_from_exact_steps(tmp_path: Path) -> None:
    found = calibrate([measured(tmp_path, steps_of())])
    all_close(found.costs, 1e-9)
    assert found.mixed is not None
    assert found.prefill.fitted.trimmed == found.decode.fitted.trimmed == 0
    assert found.decode.fitted.r2 == pytest.approx(1)
    assert found.origin.kv_tokens == 40_000


@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_noise_and_outliers_move_the_constants_little(tmp_path: Path, noise: float) -> None:
    found = calibrate([measured(tmp_path, steps_of(n=4000, noise=noise, outliers=0.05))])
    lines_only = ("beta_p_s", "alpha_d_s", "beta_d_s")
    all_close(found.costs, noise / 4, lines_only)
    all_close(found.costs, noise / 2, ("alpha_p_s",))
    for r in (0.05, 0.1, 0.3):
        assert found.costs.beta_mb(r) == pytest.approx(TRUE.beta_mb(r), rel=noise / 2)
    assert found.decode.fitted.spread == pytest.approx(noise, rel=0.15)
    assert found.decode.fitted.trimmed == pytest.approx(0.05 * 4000, rel=0.3)
    assert any("of the measured time" in warning for warning in found.decode.warnings)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hit = 0
    for _ in range(200):
        load = rng.integers(1, 200, 400).astype(float)
        took = (0.01 + 1e-4 * load) * rng.normal(1, 0.05, 400)
        one = fit(np.column_stack((np.ones_like(load), load)), took)
        hit += abs(one.coefficients[1] - 1e-4) <= one.half_widths[1]
    assert 176 <= hit <= 200


def test_a_cost_that_bends_is_no_noise_and_is_said(tmp_path: Path) -> None:
    # Short prompts cost what reading the weights costs; nine in ten are short.
    rng = np.random.default_rng(5)
    tokens = np.where(rng.random(4000) < 0.9, rng.integers(1, 300, 4000), rng.integers(300, 8000, 4000)).tolist()
    rows = steps_of("d", 200) + [
        step(i, (0.02**2 + (7e-5 * n) ** 2) ** 0.5 * rng.lognormal(0, 0.01), 0, n) for i, n in enumerate(tokens)
    ]
    found = calibrate([measured(tmp_path, rows)]).prefill
    assert found.fitted.trimmed < 20
    assert found.fitted.explained == pytest.approx(1, abs=0.05)
    assert any("this cost is no straight line" in warning for warning in found.warnings)


def test_an_outlier_at_the_end_of_the_range_is_left_out() -> None:
    load = np.arange(1.0, 401.0)
    took = 0.01 + 1e-4 * load
    took[[0, -1]] *= 7
    one = fit(np.column_stack((np.ones_like(load), load)), took)
    assert one.trimmed == 2
    assert one.coefficients == pytest.approx((0.01, 1e-4), rel=1e-9)


def test_runs_of_the_virtual_engine_give_their_own_constants(tmp_path: Path) -> None:
    paths = []
    for policy in ("v1", "eb:k=8"):
        for concurrency in (16, 64):
            spec = RunSpec(
                gpu="rtxpro6000",
                model="Qwen/Qwen3-8B",
                policy=policy,
                workload="sharegpt",
                arrival=f"closed:concurrency={concurrency}",
                requests=400,
                slots=256,
                cost_model="linear",
            )
            prepared = prepare(spec, Simulated)
            paths.append(run(prepared, tmp_path, ["bench"], lambda _: None, lambda: False).path)
    found = calibrate(paths)
    pair = load_pair("rtxpro6000", "Qwen3-8B")
    for name, value in dataclasses.asdict(pair.policy_constants(1, 1, 32, "linear")).items():
        assert getattr(found.costs, name) == pytest.approx(value, rel=1e-3), name
    assert found.origin.kv_tokens == pair.kv_tokens
    assert any("not of a machine" in line for line in report(found))
    write_profile(found, tmp_path / "again.toml")
    again = load_pair(str(tmp_path / "again.toml"), "Qwen3-8B")
    assert again.degraded() == ("fitted to simulated steps, not to a machine",)
    # The data sheet came along, so that the file says no less than the GPU's own.
    assert again.gpu.memory_gb == pair.gpu.memory_gb


def test_without_mixed_steps_the_form_is_additive_and_says_so(tmp_path: Path) -> None:
    found = calibrate([measured(tmp_path, steps_of("pd"))])
    assert found.mixed is None
    assert "0 mixed steps: their cost is assumed additive: add runs under v1" in found.why_additive
    assert found.costs.alpha_mb_s == found.costs.alpha_d_s
    assert found.costs.beta_mb(0.0) == pytest.approx(TRUE.beta_p_s)
    assert found.costs.beta_mb(1.0) == pytest.approx(TRUE.beta_d_s)


def test_mixed_steps_too_alike_hold_what_they_cannot_tell(tmp_path: Path) -> None:
    rows = [one for one in steps_of() if not (one["prefill_tokens"] and one["decode_requests"])]
    rows += [step(1e3 + i, seconds(1000 + i % 50 * 60, 256), 256, 1000 + i % 50 * 60) for i in range(200)]
    found = calibrate([measured(tmp_path, rows)])
    assert found.mixed is not None
    assert any("held" in warning for warning in found.mixed.warnings)
    assert found.costs.alpha_mb_s == found.costs.alpha_p_s
    assert lowest_beta_mb(found.costs.mixed_a_s, found.costs.mixed_b_s, found.costs.mixed_c_s) > 0
    for one in (rows[-1], rows[-20]):
        tokens = one["prefill_tokens"] + one["decode_requests"]
        fitted = found.costs.alpha_mb_s + found.costs.beta_mb(one["decode_requests"] / tokens) * tokens
        assert fitted == pytest.approx(one["duration_s"], rel=0.02)


def test_a_small_range_and_few_steps_are_warned_of(tmp_path: Path) -> None:
    rows = [step(i, seconds(0, 100 + i % 9), 100 + i % 9) for i in range(60)]
    rows += [step(100 + i, seconds(100 + 7 * i, 0), 0, 100 + 7 * i) for i in range(200)]
    told = report(calibrate([measured(tmp_path, rows)]))
    assert any("requests from 100 to 108 only: too alike to tell β_d well" in line for line in told)
    assert any("60 steps are few (below 100)" in line for line in told)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (steps_of("dm", 50), r"0 prefill-only steps.*eb:k="),
        (steps_of("pm", 50), r"0 decode-only steps.*eb:k="),
        (steps_of("pd", 9), r"9 prefill-only steps in these runs, and 10 are the least"),
        (steps_of("p", 50) + steps_of("d", 50, most=1), "β_d: every step has the same load of 1, so no slope"),
        (
            steps_of("p", 50) + [step(i, 1.0 - i / 100, i + 1) for i in range(50)],
            "β_d comes out as -.* not positive",
        ),
        (steps_of("p", 50) + [step(i, 1e-4 * (i + 1), i + 1) for i in range(50)], "α_d comes out as"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_runs_that_would(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        calibrate([measured(tmp_path, rows)])
    assert "\n" not in str(error.value)


def test_a_negative_intercept_of_prefill_is_held_at_zero(tmp_path: Path) -> None:
    rows = steps_of("d", 100) + [step(i, 1e-6 * n**1.3, 0, n) for i, n in enumerate(range(100, 4000, 13))]
    found = calibrate([measured(tmp_path, rows)])
    assert found.costs.alpha_p_s == 0
    assert any("held at 0" in warning for warning in found.prefill.warnings)


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    first = measured(tmp_path, steps_of())
    others = {
        "kind": measured(tmp_path / "a", steps_of(), kind="emulated"),
        "model": measured(tmp_path / "b", steps_of(), dataclasses.replace(CPU, model="nobody/other")),
        "GPU": measured(tmp_path / "c", steps_of(), dataclasses.replace(CPU, gpu="l40s")),
        "engine": measured(tmp_path / "d", steps_of(), engine_version="0.33.0"),
        "machine": measured(tmp_path / "e", steps_of(), host={"cpu": "another", "cores": 2}),
    }
    for name, other in others.items():
        with pytest.raises(UserError, match=f"these runs differ in {name} "):
            calibrate([first, other])
    assert len(calibrate([first, first]).origin.runs) == 1


def test_a_run_without_a_step_log_is_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path, [request(0)], None, spec=CPU, kind="measured", provenance=VLLM)
    with pytest.raises(UserError, match="has no step log"):
        calibrate([path])


def test_the_kv_capacity_is_the_machines_own_or_asked_for(tmp_path: Path) -> None:
    own = measured(tmp_path / "own", steps_of())
    small = measured(tmp_path / "small", steps_of(), dataclasses.replace(CPU, kv_tokens=1600), kv_cache_tokens=1600)
    assert calibrate([own, small]).origin.kv_tokens == 40_000
    alone = calibrate([small])
    assert alone.origin.kv_tokens == 1600
    assert "not the machine's own" in " ".join(report(alone))
    assert calibrate([own], kv_tokens=8000).origin.kv_tokens == 8000
    silent = write_run(tmp_path / "s", [request(0)], steps_of(), spec=CPU, kind="measured", provenance={"host": HOST})
    with pytest.raises(UserError, match="give it with --kv-tokens"):
        calibrate([silent])


def written(tmp_path: Path, kinds: str = "pdm") -> tuple[Calibration, str]:
    found = calibrate([measured(tmp_path, steps_of(kinds, noise=0.02))])
    path = tmp_path / "cpu-tiny.toml"
    write_profile(found, path)
    return found, str(path)


@pytest.mark.parametrize("kinds", ["pdm", "pd"])
def test_the_profile_gives_back_what_was_fitted(tmp_path: Path, kinds: str) -> None:
    found, path = written(tmp_path, kinds)
    pair = load_pair(path, "tiny")
    assert (pair.model_name, pair.kv_tokens, pair.basis, pair.gpu.has_sheet) == (
        "nobody/tiny",
        40_000,
        "calibrated",
        False,
    )
    assert pair.fit is not None
    assert pair.fit.runs == found.origin.runs
    assert bool(pair.degraded()) == (kinds == "pd")
    for name, value in dataclasses.asdict(found.costs).items():
        assert getattr(pair.policy_constants(10, 10, 64), name) == pytest.approx(value, rel=1e-8, abs=1e-12)
    assert pair.cost().name == "linear"
    with pytest.raises(UserError, match="no figures of the GPU and the model, so no roofline: use linear"):
        pair.cost("roofline")
    assert pair.describe() == "cpu-tiny / tiny: calibrated step times (linear)"
    assert pair.to_manifest()["model"] == {"name": "nobody/tiny"}


def test_a_profile_of_one_model_names_it_where_another_is_asked_for(tmp_path: Path) -> None:
    _, path = written(tmp_path)
    for model in ("Qwen3-8B", "nobody/else"):
        with pytest.raises(UserError, match=r"no measured pair of .*nobody/tiny"):
            load_pair(path, model)


def test_nothing_is_written_over_and_only_toml_is_written(tmp_path: Path) -> None:
    found, path = written(tmp_path)
    with pytest.raises(UserError, match="is there already and is not written over"):
        write_profile(found, Path(path))
    with pytest.raises(UserError, match=r"name a file that ends in \.toml"):
        write_profile(found, tmp_path / "profile")
    with pytest.raises(UserError, match="cannot be written"):
        write_profile(found, tmp_path / "none" / "x.toml")


def test_names_are_written_as_toml_reads_them(tmp_path: Path) -> None:
    spec = dataclasses.replace(CPU, model='/where/it "lies"\\here/tiny ü')
    found = calibrate([measured(tmp_path, steps_of(), spec)])
    path = tmp_path / "odd.toml"
    write_profile(found, path, label='a "label"\\')
    assert load_pair(str(path), "tiny ü").model_name == spec.model
    assert load_pair(str(path), spec.model).gpu.label == 'a "label"\\'
    assert "bench calibrate" in profile_of(found)
    assert document(found)["constants"]["beta_p_s"] == found.costs.beta_p_s
