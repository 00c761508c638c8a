"""Gains over v1 beside the published ones: signs, what Table 4 says, and docs/table4.md against its script."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.support.places import ROOT

REFERENCE = ROOT / "../shared/reference/paper_tables.json"


@pytest.fixture(scope="module")
def table4() -> ModuleType:
    spec = importlib.util.spec_from_file_location("table4", ROOT / "scripts/table4.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["table4"] = module
    spec.loader.exec_module(module)
    return module


def test_a_sign_is_held_only_by_a_change_that_shows(table4: ModuleType) -> None:
    pairs = [(-0.9, 6.9), (3.1, 14.9), (-0.01, 5.0), (2.0, 0.01), (-53.8, 44.7), (-26.0, -20.0)]
    gains = [table4.Gain("h200", "eb", "tok/s", told, {"linear": ours}) for told, ours in pairs]
    assert table4.held(gains, "linear", 0.05) == "2/5"  # −0.01 is printed as 0.0 and has no sign
    assert table4.held(gains, "linear", 5) == "1/2"
    assert gains[4].error("linear") == pytest.approx(98.5)


def test_a_gain_is_read_from_cells_then_as_printed_then_from_output_tokens(table4: ModuleType) -> None:
    def row(policy: str, metric: str, value: float, note: str | None = None) -> dict[str, object]:
        return {"gpu": "G", "concurrency": 32, "policy": policy, "metric": metric, "value": value, "note": note}

    total, output = "total_token_throughput", "output_token_throughput"
    rows = [row("v1", output, 100), row("eb", output, 80), row("v1", "mean_ttft", 2), row("eb", "mean_ttft", 3)]
    assert table4.published_gain(rows, "G", "eb", 32, "mean_ttft") == pytest.approx(50)
    assert table4.published_gain(rows, "G", "eb", 32, "mean_tpot") is None
    assert table4.published_gain(rows, "G", "eb", 32, total) == pytest.approx(-20)
    rows += [row("eb", "gain_vs_v1", 5), row("eb", "gain_vs_v1", 9, "CONTRADICTS +5% of arXiv")]
    assert table4.published_gain(rows, "G", "eb", 32, total) == 5
    rows += [row("v1", total, 200), row("eb", total, 250)]
    assert table4.published_gain(rows, "G", "eb", 32, total) == pytest.approx(25)


def test_the_page_holds_what_the_script_says(
    table4: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not REFERENCE.is_file():
        pytest.skip(f"no published tables at {REFERENCE}")
    monkeypatch.setattr(sys, "argv", ["table4.py", "--reference", str(REFERENCE)])
    table4.main()
    page = set((ROOT / "docs/table4.md").read_text(encoding="utf-8").splitlines())
    titles = ("error in %", "Table 4: changes", "Tables 2, 3", "Figure 4: changes")
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(titles) or "  " in line]
    assert len(lines) > 300
    assert [line for line in lines if line not in page] == []
