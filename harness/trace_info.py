"""What a workload holds: rows, lengths, times, source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.trace import Ints, Trace

if TYPE_CHECKING:
    from rich.console import RenderableType


def trace_info(trace: Trace) -> dict[str, Any]:
    """The JSON document of `bench trace info`: counts, lengths in tokens, times in seconds."""
    times = trace.timestamp_s
    return {
        "workload": trace.source.get("workload", trace.name),
        "label": trace.label,
        "rows": len(trace),
        "sessions": None if trace.session is None else int(np.count_nonzero(np.diff(np.sort(trace.session)))) + 1,
        "first_s": None if times is None else float(times[0]),
        "last_s": None if times is None else float(times[-1]),
        "prompt_tokens": _lengths(trace.prompt_tokens),
        "output_tokens": _lengths(trace.output_tokens),
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
    parts: list[RenderableType] = [head, table]
    for reason, count in document["skipped"].items():
        parts.append(Text(f"skipped {count:,}: {reason}"))
    parts.append(Text(_told(document["source"]), style="dim"))
    parts.append(Text(f"digest {document['digest']}", style="dim"))
    return Group(*parts)


def _told(source: dict[str, Any]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in source.items() if key not in ("skipped", "workload"))
