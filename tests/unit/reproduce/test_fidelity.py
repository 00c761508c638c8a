"""docs/fidelity.md holds what scripts/fidelity.py says, of the figures that are quick to make again."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from tests.support.places import ROOT, SHARED

REFERENCE = SHARED / "reference"
PAGE = ROOT / "docs/fidelity.md"


@pytest.fixture(scope="module")
def fidelity() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import fidelity
    finally:
        sys.path.pop(0)
    return fidelity


@pytest.fixture(scope="module")
def published(fidelity: ModuleType) -> ModuleType:
    return sys.modules["published_cells"]


def page() -> list[str]:
    return PAGE.read_text(encoding="utf-8").splitlines()


def test_the_page_holds_what_the_script_says(fidelity: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    if not REFERENCE.is_dir():
        pytest.skip("no ../shared/reference next to the repository: no published figure was predicted")
    known = fidelity.cells(REFERENCE / "paper_tables.json")
    light = [cell for cell in known if cell.group == "Table 4" and cell.setup.load == 32]
    results = {(s, model): fidelity.run(s, model) for s in fidelity.setups(light) for model in fidelity.MODELS}
    fidelity.print_cells(light, results)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(lines) > 15
    assert [line for line in lines if line not in page()] == []


def test_real_runs_are_as_the_page_says(fidelity: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    if not REFERENCE.is_dir():
        pytest.skip("no ../shared/reference next to the repository: the real RTX PRO 6000 run was not predicted")
    fidelity.print_real_runs(REFERENCE)
    lines = [line for line in capsys.readouterr().out.splitlines() if "RTX PRO 6000" in line]
    assert len(lines) == 3
    assert [line for line in lines if line not in page()] == []


def kernels(experiment: str, metric: str) -> tuple[str, str]:
    """Median and mean of the errors of kernels, as the page has them."""
    row = next(line for line in page() if line.startswith(f"| {experiment} | {metric} |"))
    median, mean = row.split("|")[6].strip().split(" / ")
    return median, mean


def test_other_documents_quote_what_the_page_says() -> None:
    """Figures that are made again in one place and quoted in others drift apart."""
    limits = " ".join((ROOT / "docs/limits.md").read_text(encoding="utf-8").split())
    median, mean = kernels("all of Qwen3-8B", "throughput")
    assert f"is off by a median of {median} % ({mean} % in the mean)" in limits
    of = [kernels("real workloads", metric)[0] for metric in ("throughput", "ttft", "tpot")]
    assert f"by {of[0]} % in throughput, {of[1]} % in TTFT and {of[2]} % in TPOT" in limits
    assert "are off by {} and {} %".format(*kernels("the same and Figure 3", "throughput")) in limits
    signs = {
        cells[1].strip(): cells[4].strip()
        for cells in (line.split("|") for line in page())
        if len(cells) == 8 and cells[2].strip() == "kernels" and " of " in cells[4]
    }
    held, clear = signs["throughput"].split(" of ")
    assert f"of the {clear} above 5 points it has the sign of {held}" in limits
    assert f"of changes of TTFT {signs['ttft']}, of TPOT {signs['tpot']}" in limits
    for sentence in (line for line in page() if line.startswith("Where all three models agree")):
        assert sentence.rsplit("sign in ", 1)[1].rstrip(".") in limits
    validating = (ROOT / "docs/validating.md").read_text(encoding="utf-8").replace("−", "-")
    for row in (line.split("|") for line in page() if line.startswith("| Llama-3.1-8B on an RTX PRO 6000")):
        quoted = " | ".join(f"{cell.strip()} %" for cell in row[5:9])
        assert quoted.replace("+0.0 %", "0.0 %") in validating


def test_a_run_that_a_model_does_not_price_is_a_dash(fidelity: ModuleType) -> None:
    mixture = fidelity.Setup("h200", "v1", "sharegpt", 10, 4, 16, 2048, "Qwen/Qwen3-30B-A3B")
    assert fidelity.run(mixture, "roofline") is None
    cell = fidelity.Cell("x", mixture, "output", 100.0)
    assert fidelity.shown(fidelity.error(cell, "roofline", {(mixture, "roofline"): None}), "+.1f") == "–"
    assert fidelity.error(cell, "kernels", {(mixture, "kernels"): {"output": 110.0}}) == pytest.approx(10)


# Sums in the authors' own result files (rucnyz/vllm, pd_exp/outputs/kstar_bs1024_c2048_n4000_v4).
@pytest.mark.parametrize(
    ("prompt", "output", "sums"),
    [(128, 1024, (514_105, 4_067_403)), (512, 512, (2_056_428, 2_033_673)), (1024, 128, (4_112_851, 508_380))],
)
def test_the_lengths_are_those_of_the_authors_client(
    published: ModuleType, prompt: int, output: int, sums: tuple[int, int]
) -> None:
    prompts, outputs = published.published_lengths.client("uniform", prompt, output, 4000)
    assert (prompts.sum(), outputs.sum()) == sums
    same, memoryless = published.published_lengths.client("geometric", prompt, output, 4000)
    assert (same == prompts).all()
    assert memoryless.mean() == pytest.approx(output, rel=0.01)
    assert memoryless.min() >= 1
    assert memoryless.max() > 5 * output


def test_where_no_slots_are_told_the_best_of_the_grid_counts(published: ModuleType) -> None:
    setup = published.Setup("h200", "v1", "client:uniform,128,64", 1200, 600, 0, 2048)
    each = [published.run(replace(setup, slots=slots), "roofline")["requests"] for slots in published.GRID]
    assert len(set(each)) > 1
    assert published.run(setup, "roofline")["requests"] == max(each)
