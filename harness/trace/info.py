"""What a workload holds: rows, lengths, times, source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.trace.stats import arrivals_of, duplicates_of, hazard_of, phases_of, sharing_of
from harness.trace.theory import theory_table
from workloads.core.trace import UNIT_QUESTION, Ints, Trace

if TYPE_CHECKING:
    from rich.console import RenderableType


def trace_info(trace: Trace) -> dict[str, Any]:
    """The JSON document of `bench trace info`: counts, lengths in tokens, times in seconds."""
    times = trace.timestamp_s
    hazard = hazard_of(trace.output_tokens)
    return {
        "workload": trace.source.get("workload", trace.name),
        "label": trace.label,
        "rows": len(trace),
        "sessions": None if trace.session is None else int(np.count_nonzero(np.diff(np.sort(trace.session)))) + 1,
        "first_s": None if times is None else float(times[0]),
        "last_s": None if times is None else float(times[-1]),
        "prompt_tokens": _lengths(trace.prompt_tokens),
        "output_tokens": _lengths(trace.output_tokens),
        "arrivals": arrivals_of(trace),
        "hazard": {"p_bar": hazard.p_bar, "p0": hazard.p0, "eta": hazard.eta},
        "shared_prefixes": sharing_of(trace),
        "duplicates": duplicates_of(trace),
        "phases": phases_of(trace),
        "decode_ratio": trace.mean_output_tokens / (trace.mean_prompt_tokens + trace.mean_output_tokens),
        "skipped": trace.source.get("skipped", {}),
        "source": trace.source,
        "digest": trace.digest,
    }


def _lengths(values: Ints) -> dict[str, float]:
    return {
        "sum": int(values.sum()),
        "mean": float(values.mean()),
        "p50": float(np.percentile(values, 50)),
        "p99": float(np.percentile(values, 99)),
        "max": int(values.max()),
    }


def info_table(document: dict[str, Any]) -> RenderableType:
    """The document for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    head = Text.assemble((document["label"], "bold"), f"  {document['rows']:,} rows")
    if document["sessions"] is not None:
        head.append(f" in {document['sessions']:,} sessions")
    if document["first_s"] is not None:
        head.append(f", {document['first_s']:.3f} to {document['last_s']:.3f} s")
    head.append(f"\nr = {document['decode_ratio']:.3f} (decode tokens over all tokens)")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tokens")
    for name in ("sum", "mean", "p50", "p99", "max"):
        table.add_column(name, justify="right")
    for name in ("prompt_tokens", "output_tokens"):
        lengths = document[name]
        table.add_row(name.split("_")[0], f"{lengths['sum']:,}", *(f"{lengths[key]:,.1f}" for key in list(lengths)[1:]))
    parts: list[RenderableType] = [head, Folding(table), *map(Text, _findings(document))]
    if "prediction" in document:
        parts += [Text(), theory_table(document["prediction"]), Text()]
    for reason, count in document["skipped"].items():
        parts.append(Text(f"skipped {count:,}: {reason}"))
    parts.append(Text(_source_text(document["source"]), style="dim"))
    parts.append(Text(f"digest {document['digest']}", style="dim"))
    return Group(*parts)


def _findings(document: dict[str, Any]) -> Iterator[str]:
    """A line for each thing that the workload shows."""
    arrivals, hazard, shared = document["arrivals"], document["hazard"], document["shared_prefixes"]
    if arrivals and arrivals["rate"]:
        gaps = f", cv of the gaps {arrivals['cv']:.2f} (Poisson has 1)" if arrivals["cv"] is not None else ""
        yield f"arrivals {arrivals['rate']:.4g} requests/s{gaps}"
    yield (
        f"hazard of the output length: p̄ = {hazard['p_bar']:.3g}/token, line {hazard['p0']:.3g} + {hazard['eta']:.3g}·t"
    )
    if shared:
        yield (
            f"shared prefixes: {shared['shared_tokens']:,} prompt tokens ({100 * shared['share']:.1f} %) stand in "
            f"blocks of {shared['block_tokens']} that an earlier prompt begins with"
        )
    if document["duplicates"]:
        yield f"{document['duplicates']:,} rows have the time and lengths of an earlier row: kept"
    for phase in document["phases"]:
        start = f" at {phase['start_s']:.1f} s" if phase.get("start_s") is not None else ""
        yield (
            f"phase {phase['name']}: from row {phase['first_row']:,}{start}, {phase['rows']:,} rows, "
            f"{phase['mu_l']:,.0f} in, {phase['mu_o']:,.0f} out, r = {phase['decode_ratio']:.3f}"
        )
    source = document["source"]
    for note in (*source.get("notes", ()), *source.get("notices", ())):
        yield f"note: {note}"


# What stands elsewhere in the table.
_SHOWN_ABOVE = ("skipped", "workload", "phases", "notes", "notices", UNIT_QUESTION)


def _source_text(source: dict[str, Any]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in source.items() if key not in _SHOWN_ABOVE)
