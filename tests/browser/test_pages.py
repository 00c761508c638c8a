"""Every kind of page in a real Chromium: nothing breaks, nothing leaves the site, all of it can be read by everyone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.support.browsed import HOSTILE, Opener

# Axe would fetch the style sheet again, which no page from a file may.
OPTIONS = {"resultTypes": ["violations"], "preload": False}
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], **OPTIONS}
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}, **OPTIONS}
PLAIN = ("index", "all", "compare", "method", "glossary", "problems", "data", "changes")
BELOW = ("runs/index", "policies/index", "policies/eb", "boards/", "gpus/", "runs/")
CONTRAST = """() => {
  const channel = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const luminance = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const rgb = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const found = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const back = luminance(rgb(getComputedStyle(document.body).backgroundColor));
    for (const text of plot.querySelectorAll("svg text")) {
      const style = getComputedStyle(text);
      if (!text.textContent.trim() || style.visibility === "hidden" || !text.getClientRects().length) continue;
      const fore = luminance(rgb(style.fill));
      const ratio = (Math.max(fore, back) + 0.05) / (Math.min(fore, back) + 0.05);
      found.push([text.textContent, ratio * Number(style.fillOpacity) * Number(style.opacity)]);
    }
  }
  return found;
}"""


def example(site: Path, kind: str) -> str:
    """A page of a kind: the one with most in it where there are several."""
    if not kind.endswith("/"):
        return f"{kind}.html"
    found = [path for path in (site / kind).rglob("*.html") if path != site / kind / "index.html"]
    return max(found, key=lambda path: path.stat().st_size).relative_to(site).as_posix()


def draw(page: Page) -> int:
    """How many charts a page has, once all are drawn: nobody has to scroll for that."""
    page.wait_for_function("() => [...document.querySelectorAll('[data-chart]')].every((one) => one.dataset.drawn)")
    return page.locator("[data-chart] svg").count()


def violations(page: Page, rules: dict[str, Any] = RULES) -> list[Any]:
    found = Axe().run(page, options=rules).response["violations"]
    return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]


@pytest.mark.parametrize("kind", PLAIN + BELOW)
def test_a_page_is_whole_in_light_and_dark_and_at_320_pixels(open_page: Opener, site: Path, kind: str) -> None:
    watched = open_page(example(site, kind), color_scheme="light")
    page = watched.page
    # One of them stands for the others: a table of a chart is like the next one's.
    page.evaluate("() => { for (const one of [document.querySelector('details')]) if (one) one.open = true; }")
    drawn = draw(page)
    for scheme, rules in (("light", RULES), ("dark", COLOURS)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type] # a name in a loop is any text to mypy
        assert violations(page, rules) == [], scheme
        texts = page.evaluate(CONTRAST)
        assert bool(texts) == bool(drawn)
        assert [one for one in texts if one[1] < 4.5] == [], scheme
    page.set_viewport_size({"width": 320, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.evaluate("window.hacked") is None
    assert watched.wrong == []


def test_hostile_names_are_text_everywhere(open_page: Opener, site: Path) -> None:
    # Of pages of one kind the first that has one stands for the others.
    by_kind: dict[str, Path] = {}
    for file in sorted(site.rglob("*.html")):
        name, *below = file.relative_to(site).parts
        if "onerror" in file.read_text():
            by_kind.setdefault(f"{name} {len(below)}", file)
    assert len(by_kind) >= 8
    for file in by_kind.values():
        text = file.read_text()
        watched = open_page(file.relative_to(site).as_posix())
        draw(watched.page)
        assert watched.page.evaluate("window.hacked") is None, file
        assert watched.page.locator("img").count() == 0, file
        assert "{{7*7}}" in text
        assert watched.wrong == [], file
        watched.page.context.close()
    page = open_page("all.html").page
    assert page.locator("tr.board", has_text=HOSTILE).count() > 0
    page.locator("select[name=workload]").select_option(HOSTILE)
    shown = page.locator("tr.board:visible").count()
    assert 0 < shown < page.locator("tr.board").count()
    page.reload()
    assert page.locator("tr.board:visible").count() == shown
    assert page.locator("select[name=workload]").input_value() == HOSTILE


def test_pages_read_without_javascript(open_page: Opener, site: Path) -> None:
    page = open_page("index.html", java_script_enabled=False).page
    assert page.locator("#view").is_hidden()
    # Every load stands there, since nobody can choose one.
    assert page.locator("section.grid:visible").count() == page.locator("section.grid").count() >= 1
    assert page.locator(".cell:visible").count() >= 2
    assert page.locator(".plot:visible").count() == 0
    page = open_page(example(site, "boards/"), java_script_enabled=False).page
    page.locator("details.numbers summary").first.click()
    assert page.locator("details.numbers table tbody tr:visible").count() >= 2
    assert page.locator("#runs ~ div a[download]:visible").count() > 2
    page = open_page(example(site, "runs/"), java_script_enabled=False).page
    assert page.locator("#rates td[data-metric]:visible").count() > 5


def test_a_printed_board_has_its_tables_and_every_chart_and_no_controls(open_page: Opener, site: Path) -> None:
    page = open_page(example(site, "boards/")).page
    page.emulate_media(media="print")
    for hidden in ("header.top nav", ".prices", ".tools", "button.csv", "details.numbers"):
        assert page.locator(hidden).first.is_hidden(), hidden
    assert page.locator(".plot svg:visible").count() == page.locator("[data-chart]").count() > 5
    assert page.locator("section table:visible").count() >= 3


@pytest.mark.parametrize("which", ["empty_site", "single_site"])
def test_an_empty_site_and_one_of_a_single_run_read_well(
    request: pytest.FixtureRequest, browser: Browser, which: str
) -> None:
    root: Path = request.getfixturevalue(which)
    watched = Opener(browser, root.as_uri())("index.html")
    for file in sorted(root.rglob("*.html")):
        name = file.relative_to(root).as_posix()
        if name.startswith("policies/") and name != "policies/index.html":
            continue
        if 'id="moved"' in file.read_text():
            continue
        page = watched.open(name)
        text = page.locator("main").inner_text()
        assert page.locator("h1").count() == 1, name
        assert len(text) > 40, name
        assert not re.search(r"\b(None|NaN)\b", text), name
        if name in ("index.html", "all.html", "data.html") or name.startswith("boards/"):
            assert violations(page) == [], name
        assert watched.wrong == [], name
    watched.page.context.close()
