"""Pages to read: the policies, the method, the glossary from the METRICS table, the changes."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from harness.measure.metrics import METRICS
from harness.measure.verdict import CHECKS
from harness.pages.assets import changes_file
from harness.pages.boards import Arm, Board
from harness.pages.facets import reported_columns
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.published.corpus import PublishedRun
from harness.published.submitted import is_submitted
from policies.catalog import ALIASES, POLICIES


def write(site: Site, writer: Writer) -> None:
    """policies/*.html, method.html, glossary.html, changes.html."""
    results = {name: _results(site, name) for name in POLICIES}
    submitted = _submitted(site)
    writer.page("policies/index.html", "policies.html.j2", policies=POLICIES, results=results, submitted=submitted)
    for name, policy in POLICIES.items():
        writer.page(
            f"policies/{name}.html",
            "policy.html.j2",
            policy=policy,
            aliases=sorted(alias for alias, stands_for in ALIASES.items() if stands_for == name),
            article=_article(writer.env, name),
            results=results[name],
            reported_columns=reported_columns,
        )
    writer.page("method.html", "method.html.j2", checks=CHECKS)
    writer.page("glossary.html", "glossary.html.j2", metrics=METRICS)
    writer.page("changes.html", "changes.html.j2", changes=_blocks(changes_file()))


def _results(site: Site, name: str) -> list[tuple[Board, Arm]]:
    """The arms of a policy, under whatever options and name, each with its board."""
    return [(board, arm) for board in site.boards for arm in board.arms if _catalog_name(arm.policy) == name]


def _submitted(site: Site) -> dict[str, list[PublishedRun]]:
    """The runs under policies of their authors' own, by the policy's name."""
    found: dict[str, list[PublishedRun]] = {}
    for published in site.corpus.runs:
        if is_submitted(published.run):
            found.setdefault(published.run.spec.policy.partition(":")[0], []).append(published)
    return dict(sorted(found.items()))


def _catalog_name(policy: str) -> str:
    """The name of a policy in the catalog: without its options, and not its alias."""
    name = policy.partition(":")[0]
    return ALIASES.get(name, name)


def _article(env: jinja2.Environment, name: str) -> str | None:
    """The template with what there is to say of a policy, None where nobody has written it."""
    article = f"policies/{name}.html.j2"
    return article if article in env.loader.list_templates() else None  # type: ignore[union-attr] # always has one


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
