"""The header of a converted trace: where its rows come from, kept so that no conversion loses it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from workloads.core.errors import WorkloadError
from workloads.core.reading import shown
from workloads.core.trace import UNIT_QUESTION, Trace
from workloads.traces.file_options import NOTHING, FileOptions

VERSION = 1
_LIFTED = ("licence", "revision", "tokenizer", "filters")


def header_of(trace: Trace) -> dict[str, Any]:
    """What a converted file says of itself: rows, digest, licence, revision, filters and all of its source."""
    source = trace.source
    header: dict[str, Any] = {
        "schedbench_trace": VERSION,
        "workload": source.get("workload", trace.name),
        "rows": len(trace),
        "digest": trace.digest,
        **{key: source.get(key) for key in _LIFTED},
        "block_tokens": None if trace.blocks is None else trace.blocks.tokens,
        "source": source,
    }
    return header


def checked(where: str, header: Any) -> dict[str, Any]:
    """The header that a file begins with; WorkloadError where it is none of this version."""
    if not isinstance(header, dict) or header.get("schedbench_trace") != VERSION:
        said = header.get("schedbench_trace") if isinstance(header, dict) else header
        raise WorkloadError(
            f"{where}: a header of schedbench_trace {shown(said)}, this version reads {VERSION}: "
            "import the trace again, or take the header out"
        )
    source = header.get("source")
    for key, kind in (("rows", int), ("digest", str), ("source", dict)):
        if type(header.get(key)) is not kind:
            raise WorkloadError(f"{where}: the header's {key} is {shown(header.get(key))}: import the trace again")
    assert isinstance(source, dict)
    blocks = header.get("block_tokens")
    if blocks is not None and (type(blocks) is not int or blocks < 1):
        raise WorkloadError(f"{where}: the header's block_tokens is {shown(blocks)}: import the trace again")
    _check_source(where, source)
    return header


def _check_source(where: str, source: dict[str, Any]) -> None:
    """What is read again of a source must be what is written there; the rest is only spelled."""
    skipped, notes, phases = source.get("skipped", {}), source.get("notes", []), source.get("phases", [])
    good = isinstance(skipped, dict) and all(type(count) is int for count in skipped.values())
    good = good and isinstance(notes, list) and all(isinstance(note, str) for note in notes)
    good = good and isinstance(phases, list) and all(_is_mark(mark) for mark in phases)
    good = good and isinstance(source.get("arrival", ""), str)
    if good and phases:
        firsts = [mark["first_row"] for mark in phases]
        good = firsts[0] == 0 and all(a < b for a, b in pairwise(firsts))
    if not good:
        raise WorkloadError(f"{where}: the header's source is damaged (skipped, notes, phases): import the trace again")


def _is_mark(mark: Any) -> bool:
    if not isinstance(mark, dict) or not isinstance(mark.get("name"), str):
        return False
    whole = type(mark.get("first_row")) is int and mark["first_row"] >= 0
    level = mark.get("concurrency", 1)
    start = mark.get("start_s")
    return whole and type(level) is int and level >= 1 and (start is None or type(start) in (int, float))


def settled(where: str, header: dict[str, Any] | None, given: FileOptions) -> FileOptions:
    """What is known of a file's times and blocks: a converted trace counts seconds and has the size of its blocks.

    Raises WorkloadError where the user tells what its header tells already.
    """
    if header is None:
        return given
    if given != NOTHING:
        raise WorkloadError(f"{where}: its header tells unit and block already: leave them out, or take out the header")
    return FileOptions("" if UNIT_QUESTION in header["source"] else "s", header.get("block_tokens") or 0)


def with_header(trace: Trace, header: dict[str, Any] | None, where: str) -> Trace:
    """The trace as read from a file with what its header says of where the rows come from.

    Raises WorkloadError where the file has fewer or more rows than the header says. Rows that are other than those
    that the header tells of take nothing of it over but a notice.
    """
    if header is None:
        return trace
    if header["rows"] != len(trace):
        raise WorkloadError(
            f"{where}: the header says {header['rows']} rows, the file has {len(trace)}: "
            "is it cut off? import the trace again, or take the header out"
        )
    source_before = dict(header["source"])
    before = {key: source_before.pop(key) for key in ("header", "window", "filters") if key in source_before}
    kept = {key: value for key, value in header.items() if key not in ("source", "block_tokens")} | before
    source = {**trace.source, "header": kept}
    if header["digest"] != trace.digest:
        notice = f"{where}: the rows are other than those its header tells of: it says nothing of them any more"
        return replace(trace, source={**source, "notices": [*source.get("notices", []), notice]})
    # The file is what was read; what it holds is what its source says.
    own = {"kind": source_before.get("kind", "file"), "notices": source.get("notices", [])}
    return replace(trace, source={**source_before, **source, **own})
