"""The catalogs as documents and as a table: policies, workloads, GPU and model pairs, each with its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.profiles.coverage import coverage
from harness.profiles.files import gpu_names
from harness.profiles.models import all_model_names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from policies.entry import PolicyEntry
    from policies.offline.catalog import OfflineEntry
    from workloads.catalog import WorkloadEntry


def policies_document(
    catalog: Mapping[str, PolicyEntry], offline: Mapping[str, OfflineEntry] | None = None
) -> list[dict[str, Any]]:
    """An entry a policy: name, summary, source, options; last those that only the token-step model has."""
    offline_only = [
        document | {"summary": f"{document['summary']} (--engine tokenstep only)"}
        for document in (_entry(entry) for name, entry in (offline or {}).items() if name not in catalog)
    ]
    return [_entry(entry) for entry in catalog.values()] + offline_only


def workloads_document(catalog: Mapping[str, WorkloadEntry]) -> list[dict[str, Any]]:
    """An entry a workload: name, summary, source, options."""
    return [_entry(entry) for entry in catalog.values()]


def _entry(entry: PolicyEntry | OfflineEntry | WorkloadEntry) -> dict[str, Any]:
    options = [{"name": option.name, "default": option.default, "help": option.help} for option in entry.options]
    return {"name": entry.name, "summary": entry.summary, "source": entry.source, "options": options}


def pairs_document() -> list[dict[str, Any]]:
    """An entry a GPU and model: on how many GPUs it fits, how a step is priced, the KV capacity, the largest gap.

    `basis` is that of the cost model of `auto`, null where there is none; `why_not` says why, `no_kernels` why there
    are no kernel times of a pair that another cost model prices.
    """
    pairs = []
    for gpu in gpu_names():
        for model in all_model_names():
            known = coverage(gpu, model)
            entry = {"name": f"{gpu} {model}", **dataclasses.asdict(known)}
            pairs.append(entry | {"basis": known.cost_models[known.auto] if known.auto else None})
    return pairs


def pairs_tables(pairs: list[dict[str, Any]]) -> RenderableType:
    """A table a GPU, a line a model; under it why some cannot be had, or not with measured kernels."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for gpu in dict.fromkeys(pair["gpu"] for pair in pairs):
        table = Table("model", "GPUs", "cost models, auto first", "mixed call", "KV tokens", "largest gap", title=gpu)
        table.title_justify, table.title_style = "left", "bold"
        refused = Text()
        for pair in (pair for pair in pairs if pair["gpu"] == gpu):
            if not pair["cost_models"]:
                refused.append(f"  {pair['model']}: {pair['why_not']}\n")
                continue
            if pair["no_kernels"]:
                refused.append(f"  {pair['model']}: without kernels: {pair['no_kernels']}\n")
            names = sorted(pair["cost_models"], key=lambda name: name != pair["auto"])
            # A roofline is always derived and kernels are always measured ones.
            told = ", ".join(f"{name} ({pair['cost_models'][name]})" if name == "linear" else name for name in names)
            gap = f"{pair['gap']['factor']:.1f}× {pair['gap']['what']}" if pair["gap"] else "–"
            kv_tokens = f"{pair['kv_tokens']:,}"
            table.add_row(pair["model"], str(pair["tp"]), told, pair["mixed_call"] or "–", kv_tokens, gap)
        parts += [table, refused] if refused else [table]
    return Group(*parts)


def catalog_table(entries: list[dict[str, Any]]) -> RenderableType:
    """Names in bold, then summary, source and a line an option."""
    from rich.text import Text

    text = Text()
    for entry in entries:
        text.append(entry["name"], style="bold")
        text.append(f"\n  {entry['summary']}\n")
        if entry["source"]:
            text.append(f"  {entry['source']}\n", style="dim")
        for option in entry["options"]:
            default = "" if option["default"] in (None, "") else f"={option['default']}"
            text.append(f"    {option['name']}{default}", style="cyan")
            text.append(f"  {option['help']}\n")
    text.rstrip()
    return text
