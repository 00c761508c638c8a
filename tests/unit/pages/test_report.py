"""`bench report`: one file of any runs that needs nothing else, and Markdown that says the same."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.pages import report
from harness.pages.report import html_report, markdown_report
from harness.runs.run import find_runs
from tests.support.runfactory import SPEC, toy_run, write_run, write_toy
from tests.support.sitefactory import write_schedules

HOSTILE = "</script><script>alert(1)</script>"


def runs(root: Path) -> list[Path]:
    return list(find_runs(root))


def test_a_report_is_one_page_without_links_to_others(tmp_path: Path) -> None:
    write_schedules(tmp_path)
    page = html_report(runs(tmp_path)).decode()
    assert re.findall(r'(?:href|src)="(?!#)', page) == []
    assert "<style>" in page
    for section in ("answer", "ranking", "throughput", "latency", "fairness", "profit", "runs"):
        assert f'id="{section}"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert str(tmp_path) not in page


def test_boards_of_one_report_do_not_share_ids(tmp_path: Path) -> None:
    for gpu in ("l40s", "h200"):
        write_schedules(tmp_path / gpu, gpu=gpu)
    page = html_report(runs(tmp_path)).decode()
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
    assert page.count("data-profit=") == 2


def test_markdown_has_the_answer_and_a_row_an_arm(tmp_path: Path) -> None:
    write_schedules(tmp_path)
    text = markdown_report(runs(tmp_path))
    assert text.startswith("### ")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 3
    assert any(line.startswith("| ljf") for line in rows)


def test_hostile_names_are_text_in_both(tmp_path: Path) -> None:
    for policy in ("v1", HOSTILE):
        spec = dataclasses.replace(SPEC, policy=policy, engine="endpoint", gpu=HOSTILE, workload=HOSTILE)
        write_run(tmp_path, *toy_run(), spec=spec)
    assert HOSTILE not in html_report(runs(tmp_path)).decode()
    assert "<script>" not in re.sub(r"\\<", "", markdown_report(runs(tmp_path)))


def test_too_much_for_one_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_toy(tmp_path, policy="v1")
    monkeypatch.setattr(report, "LARGEST_BYTES", 10_000)
    with pytest.raises(UserError, match="name fewer runs"):
        html_report(runs(tmp_path))
