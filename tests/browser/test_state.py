"""What a reader chooses stands in the URL; keys do what the mouse does; numbers are those of the files."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browsed import Opener
from tests.support.commands import BENCH


def shown(page: Page) -> int:
    return page.locator(".board:visible").count()


def test_a_filter_stands_in_the_url_and_back_undoes_it(open_page: Opener) -> None:
    page = open_page("all.html").page
    every = shown(page)
    page.locator("select[name=gpu]").select_option("h100-sxm")
    assert page.url.endswith("?gpu=h100-sxm")
    some = shown(page)
    assert 0 < some < every
    assert page.locator("#shown").inner_text() == f"{some} of {every} shown"
    page.locator("select[name=kind]").select_option("reported")
    assert shown(page) == 1
    page.reload()
    assert shown(page) == 1
    page.go_back()
    page.go_back()
    assert (shown(page), urlsplit(page.url).query) == (every, "")
    page.go_forward()
    assert shown(page) == some
    page.get_by_role("button", name="Show all").click()
    assert (shown(page), urlsplit(page.url).query) == (every, "")


def test_a_load_reads_as_people_say_it_and_stands_in_the_url_as_specs_have_it(open_page: Opener) -> None:
    page = open_page("all.html").page
    page.locator("select[name=load]").select_option(label="64 in flight")
    assert page.url.endswith("?load=closed%3Aconcurrency%3D64")
    assert 0 < shown(page) == page.locator(".board[data-load='closed:concurrency=64']").count()


@pytest.mark.parametrize("query", ["?gpu=none-such&load=up", "?colour=red&sort=nothing-up", "?gpu=%3Cscript%3E&%"])
def test_unknown_keys_and_values_do_no_harm(open_page: Opener, query: str) -> None:
    watched = open_page("all.html")
    every = shown(watched.page)
    watched.open(f"all.html{query}")
    assert shown(watched.page) == every
    watched.open(f"index.html{query}")
    assert watched.page.locator("section.grid:visible").count() == 1
    assert watched.wrong == []


def test_the_grid_shows_one_load_and_the_chart_of_the_cell_that_is_pointed_at(open_page: Opener) -> None:
    page = open_page("index.html").page
    assert page.locator("section.grid:visible").count() == 1
    cell = page.locator(".cell:visible").last
    cell.focus()
    board = cell.get_attribute("data-board")
    assert page.locator("#peek-link").get_attribute("href") == f"boards/{board}.html"
    assert page.locator("[data-chart=peek] svg").count() == 1
    other = page.locator("input[name=load]:not(:checked)").first
    load = other.get_attribute("value")
    other.check()
    assert urlsplit(page.url).query == f"load={load}"
    page.reload()
    assert page.locator(f"section.grid[data-load={load}]").is_visible()
    page.go_back()
    assert page.locator(f"section.grid[data-load={load}]").is_hidden()


def test_the_answer_is_seen_without_scrolling(open_page: Opener) -> None:
    for width, height in ((1280, 800), (390, 2 * 844)):
        page = open_page("index.html", width).page
        for cell in page.locator(".cell:visible").all():
            box = cell.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= height
        assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 844


@pytest.mark.parametrize(
    "old",
    [
        "index.html#b-ID",
        "latency/ID.html",
        "frontier/ID.html?c=0.01",
        "drift/ID.html",
        "latency.html",
        "crossover.html",
    ],
)
def test_an_address_of_before_leads_on(open_page: Opener, site: Path, old: str) -> None:
    boards = sorted((site / "boards").glob("*.html"), key=lambda path: path.stat().st_size)
    watched = open_page("method.html")
    watched.open(old.replace("ID", boards[-1].stem))
    page = watched.page
    target = {"latency.html": "all", "crossover.html": "policies/eb"}.get(old, f"boards/{boards[-1].stem}")
    page.wait_for_url(f"**/{target}.html**")
    if "?" in old:
        assert page.locator("input[name=c]").input_value() == "0.01"
        assert page.url.endswith("#profit")
    assert watched.wrong == []


BOARD = "section.board:has(th a:text-is('ljf [oracle lengths]'))"


def column(page: Page, key: str) -> list[float]:
    return [
        float(one.get_attribute("data-value") or "nan")
        for one in page.locator(f"{BOARD} td[data-metric='{key}']").all()
    ]


def test_tables_are_sorted_by_keyboard_and_say_so(open_page: Opener) -> None:
    page = open_page("gpus/h100.html").page
    table = page.locator(BOARD)
    before = column(page, "ttft_s_steady")
    header = table.locator("th[data-key=ttft]")
    header.locator("button").focus()
    page.keyboard.press("Enter")
    # The best comes first: of a wait the shortest, of a rate the highest.
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(page, "ttft_s_steady") == sorted(before)
    page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "descending"
    assert column(page, "ttft_s_steady") == sorted(before, reverse=True) != before
    assert page.url.endswith("?sort=ttft-desc")
    page.reload()
    assert column(page, "ttft_s_steady") == sorted(before, reverse=True)
    header.locator("button").click()
    assert table.locator("[aria-sort]").count() == 0
    assert column(page, "ttft_s_steady") == before


def test_what_is_invalid_stays_below_and_says_so(open_page: Opener) -> None:
    page = open_page("gpus/l40s.html?sort=output-asc").page
    rows = page.locator("section.board:has(tr.unranked) tbody tr")
    assert rows.last.get_attribute("class") == "unranked"
    assert "not ranked: INVALID" in rows.last.inner_text()


def test_what_is_seen_can_be_taken_away(open_page: Opener, site: Path) -> None:
    boards = sorted((site / "boards").glob("*.html"), key=lambda path: path.stat().st_size)
    page = open_page(f"boards/{boards[-1].stem}.html").page
    with page.expect_download() as found:
        page.get_by_role("button", name="CSV").first.click()
    rows = found.value.path().read_text().splitlines()
    assert rows[0].startswith("Policy,")
    assert len(rows) == 1 + page.locator("#ranking ~ div tbody tr").count()
    for kind, begins in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as found:
            page.get_by_role("button", name=f"This chart as {kind}").first.click()
        assert found.value.path().read_bytes().startswith(begins)


def test_prices_are_computed_in_the_page_and_stand_in_its_address(open_page: Opener, site: Path) -> None:
    boards = sorted((site / "boards").glob("*.html"), key=lambda path: path.stat().st_size)
    watched = open_page(f"boards/{boards[-1].stem}.html")
    page = watched.page
    cell = page.locator("#money details tbody tr td").nth(3)
    before = cell.text_content()
    page.locator("input[name=hour]").fill("1000")
    page.locator("input[name=hour]").blur()
    assert cell.text_content() != before
    assert "hour=1000" in page.url
    for wrong in ("-3", "1e300"):
        page.locator("input[name=hour]").fill(wrong)
        assert "give a number" in page.locator("#priced").inner_text()
    page.locator("input[name=hour]").fill("0")
    assert page.locator("#priced").inner_text() == "All charts are at these prices."
    page.get_by_role("button", name="Defaults").click()
    assert cell.text_content() == before
    assert watched.wrong == []


def value_of(text: str) -> float:
    """A number as a page shows it, in the unit of the files."""
    number, _, unit = text.replace(",", "").partition(" ")
    return float(number) * {"": 1, "s": 1, "ms": 1e-3}[unit]


def test_the_numbers_of_a_runs_page_are_those_of_its_summary(open_page: Opener, site: Path) -> None:
    runs = [path.parent for path in sorted(site.glob("runs/*/steps.parquet"))][:3]
    for run in runs:
        metrics = json.loads((run / "summary.json").read_text())["metrics"]
        page = open_page(f"runs/{run.name}/index.html").page
        cells = {
            one.get_attribute("data-metric") or "": one.inner_text() for one in page.locator("td[data-metric]").all()
        }
        assert "output_throughput" in cells
        assert "ttft_s.p99" in cells
        for key, text in cells.items():
            name, _, statistic = key.partition(".")
            told = metrics[name][statistic or "value"]
            assert text == "–" if told is None else value_of(text) == pytest.approx(told, rel=6e-3, abs=1e-12), key


def test_a_boards_values_are_the_means_of_the_summaries(open_page: Opener, site: Path) -> None:
    page = open_page("gpus/l40s.html").page
    board = page.locator("section.board[data-slo='ttft_s=1']:not([data-workload^=drift])")
    for row in board.locator("tbody tr").all():
        link = row.locator("th a").get_attribute("href") or ""
        repeats = [Path(link).parent.name]
        text = (site / "gpus" / link).read_text()
        repeats += re.findall(r'href="../../runs/([0-9a-f]{10})/index.html">repeat', text)
        assert len(repeats) == 2
        told = [json.loads((site / f"runs/{one}/summary.json").read_text())["metrics"] for one in repeats]
        for key in ("output_throughput", "goodput", "ttft_s", "ttft_s.p99"):
            name, _, statistic = key.partition(".")
            # A closed loop's table leaves out start and end.
            cell = row.locator(f"td[data-metric='{key}']")
            if not cell.count():
                name = f"{name}_steady"
                cell = row.locator(f"td[data-metric='{name}{'.' if statistic else ''}{statistic}']")
            values = [one[name].get(statistic or "value", one[name].get("mean")) for one in told]
            if None in values:
                assert cell.get_attribute("data-value") == ""
                continue
            mean = sum(values) / 2
            assert float(cell.get_attribute("data-value") or "nan") == pytest.approx(mean, rel=1e-9)
            shown_text = cell.inner_text().splitlines()[0]
            assert value_of(shown_text) == pytest.approx(mean, rel=6e-3)


class Links(HTMLParser):
    """The links, sources and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value or "")
            elif name == "id":
                self.ids.append(value or "")


@pytest.mark.parametrize("which", ["site", "empty_site", "single_site"])
def test_every_link_and_download_of_the_site_is_there(request: pytest.FixtureRequest, which: str) -> None:
    root: Path = request.getfixturevalue(which)
    pages = {path: Links(path.read_text()) for path in root.rglob("*.html")}
    linked = set()
    for path, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), path
        for link in page.links:
            parts = urlsplit(link)
            assert not parts.scheme, (path, link)
            assert not parts.netloc, (path, link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), (path, link)
            assert target.is_relative_to(root.resolve())
            linked.add(target)
            if parts.fragment and not parts.query:
                assert unquote(parts.fragment) in pages[target].ids, (path, link)
    # Every page can be reached, and every raw file.
    raw = {path.resolve() for path in root.glob("runs/*/*") if path.name != "index.html"}
    assert {path.resolve() for path in pages} | raw <= linked


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The site over http."""
    command = [BENCH, "site", "serve", "--dir", str(site), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0].rstrip("/")
        process.send_signal(2)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_over_http_pages_work_as_from_files(browser: Browser, served: str) -> None:
    watched = Opener(browser, served)("")
    page = watched.page
    page.locator(".cell:visible").first.click()
    page.wait_for_function("document.querySelector('[data-chart]').dataset.drawn")
    page.locator("nav.contents").get_by_role("link", name="Compare").click()
    page.locator("#comparison").wait_for()
    with page.expect_download() as download:
        page.go_back()
        page.locator("a[download]", has_text="steps.parquet").first.click()
    assert download.value.path().stat().st_size > 1000
    assert watched.wrong == []
    page.context.close()


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as found:  # noqa: S310 - our own server
            return found.status, found.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, ""


def test_the_server_tells_types_and_gives_nothing_else(served: str, site: Path) -> None:
    (site / "out").symlink_to(site.parent)
    try:
        assert answer(f"{served}/") == (200, "text/html; charset=utf-8")
        assert answer(f"{served}/assets/site.js") == (200, "text/javascript; charset=utf-8")
        assert answer(f"{served}/assets/icon.svg") == (200, "image/svg+xml")
        run = next(site.glob("runs/*/steps.parquet")).parent.name
        assert answer(f"{served}/runs/{run}/run.json") == (200, "application/json")
        assert answer(f"{served}/runs/{run}/steps.parquet") == (200, "application/vnd.apache.parquet")
        secret = site.parent / "secret.html"
        secret.write_text("secret")
        for path in ("../secret.html", "%2e%2e/secret.html", "..%2fsecret.html", "out/secret.html", "assets/", "//etc"):
            assert answer(f"{served}/{path}")[0] == 404, path
    finally:
        (site / "out").unlink()
