"""Signs of published changes, as docs/fidelity.md tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.pages import fidelity
from harness.pages.words import kind_title
from tests.support.runfactory import SPEC, toy_run, write_run
from tests.support.sitefactory import only_board, site_of


def test_the_signs_of_the_document_are_told_by_model_and_gpu(tmp_path: Path) -> None:
    right, of = fidelity.signs_by_gpu()["kernels", "rtxpro6000"]
    assert 5 < right <= of
    requests, steps = toy_run(60)
    write_run(tmp_path / "results", requests, steps, provenance={"cost_model": {"name": "kernels"}}, spec=SPEC)
    board = only_board(site_of(tmp_path / "results", tmp_path / "kept"))
    told = fidelity.signs_of(board)
    assert f"the sign of {fidelity.signs_held()['kernels']} published changes" in told
    assert told.endswith("none of them on this GPU.")
    assert told in kind_title(board)


def test_changes_that_are_listed_are_counted_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "| experiment | cell | policy | published | linear | roofline | kernels |\n|---|---|---|---|---|---|---|\n"
        "| Table 4 | h200 a, c=1 | eb | +8.0 | -1.0 | +2.0 | – |\n"
        "| Table 4 | h200 b, c=1 | eb | −9.0 | -1.0 | +2.0 | +3.0 |\n"
        "| Table 4 | h200 b, c=1 | eb | +4.0 | -1.0 | -2.0 | -3.0 |\n"
        "| Figure 3 | h200 b, c=1 | eb | +9.0 | -1.0 | -2.0 | -3.0 |\n"
        "| Table 4 | h200 30B b, c=1 | eb | +9.0 | -1.0 | -2.0 | -3.0 |\n\n"
    )
    monkeypatch.setattr(fidelity, "document", lambda _: text)
    counted = fidelity.signs_by_gpu.__wrapped__()
    assert counted == {("linear", "h200"): (1, 2), ("roofline", "h200"): (1, 2), ("kernels", "h200"): (0, 1)}
    assert fidelity.signs_held.__wrapped__() == {}
