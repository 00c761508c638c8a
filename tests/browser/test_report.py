"""`bench report` as people type it: one file that opens from anywhere, and that everyone can read."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.test_pages import draw, violations
from tests.support.browsed import Opener
from tests.support.commands import BENCH


def report(results: Path, *more: str) -> subprocess.CompletedProcess[str]:
    runs = [str(results / gpu) for gpu in ("l40s", "h100")]
    return subprocess.run([BENCH, "report", *runs, *more], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def page(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "for a colleague.html"
    done = report(results, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{out}: ")
    return out


def test_a_report_is_one_small_file_that_opens_alone(browser: Browser, page: Path) -> None:
    assert os.path.getsize(page) <= 2_000_000
    assert [path.name for path in page.parent.iterdir()] == [page.name]
    watched = Opener(browser, page.parent.as_uri())("for%20a%20colleague.html", java_script_enabled=True)
    opened = watched.page
    opened.context.set_offline(True)
    opened.reload()
    assert draw(opened) > 10
    assert opened.locator("h1").count() == 1
    assert violations(opened) == []
    opened.emulate_media(color_scheme="dark")
    opened.set_viewport_size({"width": 390, "height": 844})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    price = opened.locator("[name$=hour]").first
    price.fill("9")
    price.dispatch_event("change")
    assert watched.wrong == []
    opened.context.close()


def test_markdown_goes_into_a_pull_request(results: Path, tmp_path: Path) -> None:
    done = report(results, "--format", "markdown")
    assert done.returncode == 0, done.stderr
    blocks = done.stdout.split("### ")[1:]
    titles = [block.splitlines()[0] for block in blocks]
    assert any("H100" in title for title in titles)
    table = [line for line in blocks[-1].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    policies = {json.loads(path.read_text())["spec"]["policy"] for path in (results / "l40s").rglob("run.json")}
    for policy in policies & {"v1", "v0", "ebplus"}:
        assert f"| {policy} " in done.stdout
    refused = report(results, "--format", "markdown", "--out", str(tmp_path / "x.html"))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "name that ends in .md" in refused.stderr
    assert not (tmp_path / "x.html").exists()
