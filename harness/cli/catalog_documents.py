"""The catalogs as documents and as a table: policies, workloads, GPU and model pairs, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.profiles.files import gpu_names, model_names
from harness.profiles.pair import load_pair

if TYPE_CHECKING:
    from rich.console import RenderableType

    from policies.catalog import PolicyEntry
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
    """An entry a GPU and model: how the cost of a step is known, and the KV capacity; or why it cannot be had."""
    pairs = []
    for gpu in gpu_names():
        for model in model_names():
            entry: dict[str, Any] = {"name": f"{gpu} {model}", "gpu": gpu, "model": model, "options": []}
            try:
                pair = load_pair(gpu, model)
                pair.cost()
            except UserError as error:
                entry |= {"summary": f"not available: {error}", "source": "", "basis": None, "kv_tokens": None}
            else:
                entry |= {"summary": pair.describe(), "source": f"{pair.kv_tokens:,} KV tokens", "basis": pair.basis}
                entry |= {"kv_tokens": pair.kv_tokens}
            pairs.append(entry)
    return pairs


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
