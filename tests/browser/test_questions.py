"""A reader who knows nothing finds each answer from the first page in two clicks at most."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support.browsed import Opener


@pytest.fixture
def page(open_page: Opener) -> Page:
    return open_page("index.html").page


def board(page: Page) -> None:
    """One click: the cell of the L40S."""
    place = page.locator("section.grid:visible thead th").all_inner_texts().index("L40S")
    page.locator(f"section.grid:visible tbody tr td:nth-child({place + 1}) .cell:visible").first.click()


def contents(page: Page, name: str) -> None:
    """One click: a section of the page."""
    page.locator("nav.contents").get_by_role("link", name=name, exact=True).click()


def test_the_policy_for_a_gpu_and_its_traffic(page: Page) -> None:
    place = page.locator("section.grid:visible thead th").all_inner_texts().index("L40S")
    short = page.locator(f"section.grid:visible tbody tr td:nth-child({place + 1}) .cell:visible b").first.inner_text()
    board(page)
    answer = page.locator("#answer").inner_text()
    assert any(word in answer for word in short.split())


def test_how_far_to_trust_it(page: Page) -> None:
    board(page)
    assert "simulated" in page.locator("#answer .trust").first.inner_text()
    page.locator("a.kind").first.click()
    assert page.url.endswith("method.html#kinds")
    assert page.locator("#kinds").is_visible()


def drawn(page: Page, name: str) -> bool:
    return page.locator(f"[data-chart={name}] svg path.line").count() > 0


def test_the_distribution_of_the_time_to_first_token(page: Page) -> None:
    board(page)
    contents(page, "Latency")
    assert drawn(page, "ttft_s")
    page.wait_for_function("() => document.querySelector('#latency').getBoundingClientRect().top < innerHeight")


def test_the_profit_at_prices_that_draw_at_once(page: Page) -> None:
    board(page)
    contents(page, "Profit")
    assert page.locator("[data-chart=money] svg path.point").count() > 1


def test_the_raw_files(page: Page, site: Path) -> None:
    board(page)
    with page.expect_download() as found:
        page.locator("a[download]", has_text="requests.parquet").first.click()
    assert found.value.path().read_bytes().startswith(b"PAR1")
