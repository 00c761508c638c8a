"""Pages of a site in a Chromium, and what goes wrong on them."""

from __future__ import annotations

import dataclasses
from typing import Any

from playwright.sync_api import Browser, Page

# A name that would run a script on any page that shows it as it is.
HOSTILE = '<img src=x onerror="window.hacked=1">\'</script><script>window.hacked=2</script>&amp;{{7*7}}'


class Watched:
    """A page with what went wrong on it: console errors, exceptions, failed requests, requests that leave the site."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.wrong: list[str] = []
        page.on("console", lambda one: self.wrong.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda one: self.wrong.append(str(one)))
        # A page that is left stops what it still loads.
        page.on("requestfailed", lambda one: None if "ABORTED" in str(one.failure) else self.wrong.append(one.url))
        page.on("request", lambda one: None if self._of_the_site(one.url) else self.wrong.append(f"leaves: {one.url}"))

    def _of_the_site(self, url: str) -> bool:
        return url.startswith((self.base, "data:", f"blob:{self.base}", "blob:null"))

    def open(self, name: str) -> Page:
        """Goes to a page of the site."""
        self.page.goto(f"{self.base}/{name}", wait_until="load")
        return self.page


@dataclasses.dataclass(frozen=True)
class Opener:
    """Opens pages of a site in contexts of their own."""

    browser: Browser
    base: str

    def __call__(self, name: str, width: int = 1280, **context: Any) -> Watched:
        page = self.browser.new_context(locale="en-US", viewport={"width": width, "height": 900}, **context).new_page()
        watched = Watched(page, self.base)
        watched.open(name)
        return watched
