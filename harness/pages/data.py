"""Results to take away: every number with its run as JSON and CSV, a feed of what is new, and how to cite it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import orjson

from harness import __version__
from harness.measure.metrics import METRICS
from harness.pages.answers import answer_of
from harness.pages.boards import Arm, Board
from harness.pages.facets import settings_words
from harness.pages.front import newest_boards
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.pages.traffic import gpu_label, load_of, workload_words
from harness.published.detail import six_digits
from harness.report.flat import FlatRow, as_csv

ENTRIES = 30
LICENCE = "Apache License 2.0"
# What tells one board from another.
_OF_A_BOARD = (
    *("gpu", "model", "workload", "arrival", "requests", "slots"),
    *("token_budget", "tp", "slo", "cost_model", "host"),
)


def about(site: Site) -> dict[str, str]:
    """What the foot of every page says: version, licence, and the day of the newest run."""
    newest = newest_boards(site.boards)
    return {"version": __version__, "licence": LICENCE, "date": newest[0][0][:10] if newest else "no day yet"}


def write(site: Site, writer: Writer) -> None:
    """leaderboard.json, leaderboard.csv, boards/BOARD.csv, feed.xml and data.html."""
    told = about(site)
    documents = [board_document(board) for board in site.boards]
    whole = {"schema": 1, **told, "boards": documents}
    writer.file("leaderboard.json", orjson.dumps(whole, option=orjson.OPT_INDENT_2) + b"\n")
    rows: list[FlatRow] = []
    for board in site.boards:
        own = list(board_rows(board))
        rows += own
        writer.file(f"boards/{board.id}.csv", as_csv(own).encode())
    writer.file("leaderboard.csv", as_csv(rows).encode())
    writer.file("feed.xml", feed(site, told["date"]).encode())
    counts = {"boards": len(site.boards), "runs": len(site.corpus.runs), "problems": len(site.corpus.problems)}
    writer.page("data.html", "data.html.j2", counts=counts)


def board_document(board: Board) -> dict[str, Any]:
    """A board as leaderboard.json has it: what it is about, its answer, and every arm with its values and runs."""
    spec = board.first.run.known_spec
    return {
        "id": board.id,
        "kind": board.kind_words,
        "load": load_of(board) if board.kind != "reported" else None,
        "baseline": board.baseline,
        **{name: spec.get(name) for name in _OF_A_BOARD},
        "answer": answer_of(board).sentences,
        "arms": [_arm_document(arm) for arm in board.arms],
    }


def _arm_document(arm: Arm) -> dict[str, Any]:
    return {
        "policy": arm.policy,
        "lengths": arm.first.run.spec.lengths,
        "verdict": arm.level,
        "runs": [published.where for published in arm.runs],
        "values": {
            name: [six_digits(value) for value in (one.mean, one.low, one.high)] for name, one in arm.values.items()
        },
        "changes": {
            name: {
                **{key: six_digits(getattr(one, key)) for key in ("ratio", "low", "high", "p")},
                "word": one.word,
                "support": one.support_word,
            }
            for name, one in arm.changes.items()
        },
        "refusal": arm.refusal,
    }


def board_rows(board: Board) -> Iterator[FlatRow]:
    """A row an arm and metric, with the runs that it comes from."""
    spec = board.first.run.known_spec
    told = {name: spec.get(name) for name in _OF_A_BOARD if name != "slo"}
    told["slo"] = " ".join(f"{name}={limit:g}" for name, limit in sorted((spec.get("slo") or {}).items()))
    for arm in board.arms:
        runs = " ".join(published.where for published in arm.runs)
        row = {"board": board.id, "kind": board.kind_words, **told, "policy": _cell(arm.label), "verdict": arm.level}
        for name, value in arm.values.items():
            change = arm.changes.get(name)
            metric = METRICS.get(name.partition(".")[0])
            yield {
                **{key: _cell(one) for key, one in row.items()},
                "metric": name,
                "unit": metric.unit if metric else None,
                **{key: six_digits(getattr(value, key)) for key in ("mean", "low", "high")},
                "change_percent": _percent(change.ratio if change else None),
                "change_low_percent": _percent(change.low if change else None),
                "change_high_percent": _percent(change.high if change else None),
                "word": change.word if change else None,
                "support": change.support_word if change else None,
                "repeats": len(arm.runs),
                "runs": _cell(runs),
            }


def _cell(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else six_digits(100 * (ratio - 1))


def feed(site: Site, date: str) -> str:
    """An Atom feed: the boards with the newest runs and what they say; the same bytes for the same runs."""
    entries = []
    for started, board in newest_boards(site.boards)[:ENTRIES]:
        title = f"{workload_words(board.spec.workload)} on {gpu_label(board.spec.gpu)}: {answer_of(board).short}"
        summary = f"{' '.join(answer_of(board).sentences)} ({board.kind_words}; {settings_words(board)})"
        entries.append(
            f"<entry><id>urn:bench:board:{board.id}:{escape(started)}</id><title>{escape(title)}</title>"
            f"<link href={quoteattr(f'boards/{board.id}.html')}/><updated>{escape(_atom_time(started))}</updated>"
            f"<summary>{escape(summary)}</summary></entry>\n"
        )
    newest = newest_boards(site.boards)
    updated = _atom_time(newest[0][0]) if newest else "1970-01-01T00:00:00Z"
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
        f"<id>urn:bench:leaderboard</id><title>bench: new results</title><updated>{updated}</updated>"
        f'<author><name>bench</name></author><link rel="alternate" href="index.html"/>\n{"".join(entries)}</feed>\n'
    )


def _atom_time(started: str) -> str:
    return started if started.endswith("Z") or "+" in started[10:] else f"{started}Z"
