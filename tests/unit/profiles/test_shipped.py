"""Profiles that ship: names, sources, capacities, and that the copied figures are the published ones."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.profiles.files import FOLDER, gpu_names, load_gpu, load_model, model_names
from harness.profiles.pair import load_pair
from tests.support.places import SHARED

GPUS = ("a100", "b200", "b300", "gb200", "gb300", "h100", "h200", "l40s", "rtxpro6000")
DENSE, MOE = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B"
REFERENCE = SHARED / "reference"


def reference(name: str) -> list[dict[str, Any]] | dict[str, list[dict[str, Any]]]:
    path = REFERENCE / name
    if not path.is_file():
        pytest.skip("no ../shared/reference next to the repository: copied figures not checked against it")
    loaded: list[dict[str, Any]] | dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
    return loaded


def test_names() -> None:
    assert gpu_names() == GPUS
    assert set(model_names()) == {DENSE, MOE}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_figure_has_a_source(file: Path) -> None:
    """A number stands in `{ value, source }` or in a table with a `source` of its own."""

    def walk(table: dict[str, Any], path: str, covered: bool) -> int:
        covered = covered or bool(str(table.get("source", "")).strip())
        found = 0
        for key, value in table.items():
            if isinstance(value, dict):
                found += walk(value, f"{path}.{key}", covered=False)
            elif isinstance(value, (int, float)):
                assert covered, f"{path}.{key} has no source"
                found += 1
        return found

    assert walk(tomllib.loads(file.read_text(encoding="utf-8")), file.stem, covered=False) >= 4


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("l40s", "l40s"),
        ("L40S", "l40s"),
        ("NVIDIA L40S", "l40s"),
        ("rtx-pro-6000", "rtxpro6000"),
        ("RTX PRO 6000", "rtxpro6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("A100-SXM4-80GB", "a100"),
        ("NVIDIA H200", "h200"),
    ],
)
def test_gpus_by_any_name(said: str, name: str) -> None:
    assert load_gpu(said).name == name


@pytest.mark.parametrize("said", ["Qwen/Qwen3-8B", "Qwen3-8B", "qwen3-8b", "qwen/qwen3-8b"])
def test_models_by_any_name(said: str) -> None:
    assert load_model(said).name == DENSE


def test_aliases_are_unambiguous() -> None:
    for name in gpu_names():
        for alias in load_gpu(name).aliases:
            assert load_gpu(alias).name == name


@pytest.mark.parametrize(
    ("load", "said", "parts"),
    [
        (load_gpu, "l40", ["no GPU named 'l40'", "did you mean l40s?", *GPUS]),
        (load_gpu, "RTX PRO 5000", ["did you mean rtxpro6000?"]),
        (load_gpu, "tpu", ["no GPU named 'tpu'", *GPUS]),
        (load_model, "Qwen3-8", ["did you mean Qwen3-8B?", DENSE, MOE]),
        (load_model, "gpt-2", ["no model named 'gpt-2'", DENSE, MOE]),
    ],
)
def test_unknown_names_suggest_the_nearest(load: Any, said: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as error:
        load(said)
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text


def test_model_sizes_agree_with_their_architecture() -> None:
    """Parameters of every tensor, counted from the configurations (intermediate sizes 12288 and 128 × 768)."""
    for name, mlp, active in ((DENSE, 3 * 12288, 3 * 12288), (MOE, 128 * 3 * 768 + 128, 8 * 3 * 768 + 128)):
        m = load_model(name)
        heads = (2 * m.query_heads + 2 * m.kv_heads) * m.head_size * m.hidden_size
        norms = 2 * m.head_size + 2 * m.hidden_size
        body = m.layers * (heads + norms + m.hidden_size * mlp) + m.hidden_size
        used = m.layers * (heads + norms + m.hidden_size * active) + m.hidden_size
        assert m.embedding_parameters == 2 * m.vocab_size * m.hidden_size
        assert m.parameters == body + m.embedding_parameters
        assert m.parameters_per_token == pytest.approx(used, rel=1e-3)
        assert m.weights_bytes == m.parameters * m.dtype_bytes
        assert m.max_model_len == 40960
    assert load_model(DENSE).kv_bytes_per_token == 147_456
    assert load_model(MOE).kv_bytes_per_token == 98_304


def test_kv_capacity_of_the_l40s() -> None:
    free = 0.9 * 48e9 - 16_381_470_720 - 3.5e9
    assert load_pair("l40s", DENSE).kv_tokens == int(free / 147_456) // 16 * 16 == 158_128


@pytest.mark.parametrize(
    ("gpu", "model", "tokens"),
    [
        ("a100", DENSE, 353_440),
        ("h100", DENSE, 353_440),
        ("h200", DENSE, 725_760),
        ("rtxpro6000", DENSE, 451_104),
        ("b300", DENSE, 1_622_976),
        ("h200", MOE, 634_112),
        ("rtxpro6000", MOE, 222_112),
        ("a100", MOE, 75_632),
    ],
)
def test_kv_capacities(gpu: str, model: str, tokens: int) -> None:
    assert load_pair(gpu, model).kv_tokens == tokens


def test_a_model_that_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^l40s / Qwen3-30B-A3B: the model does not fit: 61\.1 GB .* use a larger GPU"):
        load_pair("l40s", MOE)


@pytest.mark.parametrize(
    ("gpu", "model", "basis", "auto"),
    [
        ("l40s", DENSE, "derived", "kernels"),
        ("a100", DENSE, "derived", "kernels"),
        ("h100", DENSE, "derived", "kernels"),
        ("h200", DENSE, "published", "kernels"),
        ("rtxpro6000", DENSE, "published", "kernels"),
        ("b300", DENSE, "published", "kernels"),
        ("h200", MOE, "published", "linear"),
        ("rtxpro6000", MOE, "published", "linear"),
        ("a100", MOE, "derived", "kernels"),
    ],
)
def test_basis_and_default_model(gpu: str, model: str, basis: str, auto: str) -> None:
    """Linear is never the default of a dense pair that others measured: it flatters exclusive batching."""
    pair = load_pair(gpu, model)
    assert pair.basis == basis
    assert pair.cost().name == pair.chosen() == auto
    assert pair.describe() == pair.describe(auto)
    assert "prediction" in pair.describe("roofline") or model == MOE


@pytest.mark.parametrize("gpu", ["a100", "h100", "b300"])
@pytest.mark.parametrize("kind", ["linear", "roofline"])
def test_a_mixture_of_experts_without_step_times_is_refused(gpu: str, kind: str) -> None:
    pair = load_pair(gpu, MOE)
    with pytest.raises(UserError, match=r"h200, rtxpro6000.*docs/adding-a-gpu\.md\)$"):
        pair.cost(kind)
    with pytest.raises(UserError, match=r"h200, rtxpro6000.*docs/adding-a-gpu\.md\)$"):
        pair.policy_constants(230, 250, 14336, kind)


def test_refused_models_of_a_pair() -> None:
    with pytest.raises(UserError, match=r"mixture of experts.*: use linear$"):
        load_pair("h200", MOE).cost("roofline")
    with pytest.raises(UserError, match=r"no measured step times.*: use roofline, or"):
        load_pair("l40s", DENSE).cost("linear")
    with pytest.raises(UserError, match="did you mean linear"):
        load_pair("h200", DENSE).cost("liner")


def test_what_is_degraded_says_why() -> None:
    assumed = "the cost of mixed steps of this pair is assumed, not measured (no published fit)"
    assert load_pair("h200", MOE).degraded() == (assumed,)
    assert load_pair("rtxpro6000", MOE).degraded() == (assumed,)
    assert "proxy" in load_pair("b300", DENSE).degraded("linear")[0]
    assert load_pair("b300", DENSE).degraded("roofline") == ()
    (unsure,) = load_pair("h200", MOE).degraded("kernels")
    assert "mixture of experts" in unsure
    for gpu in ("h200", "rtxpro6000", "l40s", "a100", "h100", "b300"):
        assert load_pair(gpu, DENSE).degraded() == ()


def test_assumed_mixed_steps_are_additive() -> None:
    for gpu in ("h200", "rtxpro6000"):
        costs = load_pair(gpu, MOE).policy_constants(230, 250, 14336)
        assert costs.alpha_mb_s == max(costs.alpha_p_s, costs.alpha_d_s)
        for r in (0.0, 0.3, 1.0):
            assert costs.beta_mb(r) == pytest.approx(costs.beta_p_s * (1 - r) + costs.beta_d_s * r, rel=1e-14)


def test_the_peak_of_gpus_without_a_sure_source() -> None:
    assert load_gpu("rtxpro6000").flops == pytest.approx(489e12, rel=1e-3)
    assert load_pair("rtxpro6000", DENSE).cost("roofline").parameters()["beta_s"] == pytest.approx(
        5.007938367705191e-05, rel=1e-14
    )
    assert load_pair("b300", DENSE).cost("roofline").parameters()["beta_s"] == pytest.approx(1.28e-5, rel=1e-14)
    for name in ("rtxpro6000", "b300"):
        assert load_gpu(name).dense_bf16_tflops is None
        assert load_gpu(name).sources["dense_bf16_tflops"].startswith("none: ")


def test_the_manifest_is_json_and_names_its_sources() -> None:
    for gpu in gpu_names():
        manifest = json.loads(json.dumps(load_pair(gpu, DENSE).to_manifest(), allow_nan=False))
        assert manifest["gpu"]["sources"]["bandwidth_tb_s"]
        assert manifest["model"]["sources"]["layers"]
        assert manifest["basis"] in ("published", "derived")
        assert (manifest["fit"] is None) == (manifest["basis"] == "derived")
        if manifest["fit"]:
            assert "@" in manifest["fit"]["sources"]["steps"]


@pytest.mark.parametrize(
    ("gpu", "label", "model"),
    [
        ("h200", "H200", DENSE),
        ("h200", "H200", MOE),
        ("rtxpro6000", "RTX PRO 6000", DENSE),
        ("rtxpro6000", "RTX PRO 6000", MOE),
        ("b300", "B300", DENSE),
    ],
)
def test_fits_are_the_published_ones(gpu: str, label: str, model: str) -> None:
    published = reference("calibrations.json")
    assert isinstance(published, dict)
    fit = load_gpu(gpu).fits[model]
    records = [r for r in published["prefill_decode"] if (r["gpu"], r["model"]) == (label, model)]
    record = records[0]  # the older H200 files follow
    assert (fit.costs.alpha_p_s, fit.costs.beta_p_s) == (record["alpha_p_s"], record["beta_p_s_per_token"])
    assert (fit.costs.alpha_d_s, fit.costs.beta_d_s) == (record["alpha_d_s"], record["beta_d_s_per_request"])
    assert record["source_commit"] in fit.sources["steps"]
    assert record["source_path"].split(" (")[0] in fit.sources["steps"]
    assert set(record["flags"]) <= set(fit.flags)
    mixed = [r for r in published["mixed_batch"] if (r["gpu"], r["model"]) == (label, model)]
    assert bool(mixed) == (fit.mixed_form == "fitted")
    for record in mixed:
        costs = fit.costs
        assert (costs.mixed_a_s, costs.mixed_b_s, costs.mixed_c_s) == tuple(
            record[f"{letter}_s_per_token"] for letter in "abc"
        )
        commits = record["source_commit"]
        assert all(c in fit.sources["mixed"] for c in ([commits] if isinstance(commits, str) else commits))
        assert set(record["flags"]) <= set(fit.flags)


def test_gpu_figures_are_the_published_ones() -> None:
    records = reference("gpus.json")
    assert isinstance(records, list)
    for record in records:
        gpu = load_gpu(record["gpu"])
        assert gpu.memory_gb == record["memory_GB"]
        assert gpu.bandwidth_tb_s == record["bandwidth_TBps_paper"]
        assert gpu.dense_bf16_tflops == record["bf16_dense_TFLOPS"]
