"""Pages to read: the method, the glossary from the METRICS table, the changes."""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup, escape

from harness.measure.metrics import METRICS
from harness.measure.verdict import CHECKS
from harness.pages.assets import changes_file
from harness.pages.render import Writer
from harness.pages.site import Site


def write(site: Site, writer: Writer) -> None:
    """method.html, glossary.html, changes.html."""
    writer.page("method.html", "method.html.j2", checks=CHECKS)
    writer.page("glossary.html", "glossary.html.j2", metrics=METRICS)
    writer.page("changes.html", "changes.html.j2", changes=_blocks(changes_file()))


def _blocks(path: Path | None) -> list[tuple[str, Markup]]:
    """The headings, list items and paragraphs of the change log; only code and bold are more than text."""
    if path is None:
        return []
    blocks: list[tuple[str, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            blocks.append((f"h{level}", line.lstrip("# ")))
        elif line.startswith("- "):
            blocks.append(("li", line[2:]))
        elif line.strip() and blocks and blocks[-1][0] in ("li", "p"):
            kind, text = blocks[-1]
            blocks[-1] = (kind, f"{text} {line.strip()}")
        elif line.strip():
            blocks.append(("p", line.strip()))
    return [(kind, _inline(text)) for kind, text in blocks]


def _inline(text: str) -> Markup:
    safe = str(escape(text))
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    safe = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe)
    return Markup(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", safe))  # noqa: S704 - escaped above
