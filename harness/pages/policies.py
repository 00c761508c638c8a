"""The policies: what each does, when it wins, and every result of it."""

from __future__ import annotations

import jinja2

from harness.pages.boards import Arm, Board
from harness.pages.crossover import crossover_values
from harness.pages.facets import reported_columns
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.pages.wins import wins_charts, wins_of, wins_sentence
from harness.published.corpus import PublishedRun
from harness.published.submitted import is_submitted
from policies.catalog import ALIASES, POLICIES

# The policy whose page has the map of where exclusive batching should win.
MAPPED = "eb"


def write(site: Site, writer: Writer) -> None:
    """policies/index.html, and policies/NAME.html for each of the catalog."""
    results = {name: _results(site, name) for name in POLICIES}
    sentences = {name: wins_sentence(name, wins_of(found)) for name, found in results.items()}
    writer.page(
        "policies/index.html", "policies.html.j2", policies=POLICIES, sentences=sentences, submitted=_submitted(site)
    )
    for name, policy in POLICIES.items():
        wins = wins_of(results[name])
        writer.page(
            f"policies/{name}.html",
            "policy.html.j2",
            policy=policy,
            aliases=sorted(alias for alias, stands_for in ALIASES.items() if stands_for == name),
            article=_article(writer.env, name),
            results=results[name],
            sentence=sentences[name],
            wins={(win.board.id, win.arm.first.id): win for win in wins},
            charts=wins_charts(wins),
            crossover=crossover_values(site.boards, site.cache) if name == MAPPED else None,
            reported_columns=reported_columns,
        )


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
