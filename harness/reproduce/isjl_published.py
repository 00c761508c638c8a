"""What arXiv 2608.02244 prints in Tables 1 to 3: our own copy of the cells, or a reference file's."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError

OWN = Path(__file__).with_name("isjl_tables.toml")

# Column of ours ← name in the reference file.
_NAMES = {
    "table1": {
        "profit": "profit",
        "cost": "cost",
        "tau_q": "tau_Q",
        "c_t": "c_T",
        "tau_e": "tau_E",
        "gain": "throughput_gain_pct_vs_LJF",
        "gap": "mean_violation_tokens",
    },
    "table2": {"saved": "time_saved_vs_LJF_steps", "tau_e": "tau_E", "break_even": "c_star"},
}


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row of a table: the policy, its α (None for FCFS, SJF, LJF) and the cells by column."""

    policy: str
    alpha: int | None
    cells: dict[str, float]


@dataclass(frozen=True, slots=True)
class Published:
    """The three tables by name (table1 …) and where they are from."""

    source: str
    tables: dict[str, list[PublishedRow]]


def published(reference: Path | None = None) -> Published:
    """The tables as printed; UserError where a `reference` (isjl_tables.json, or its directory) cannot be read."""
    if reference is None:
        values = tomllib.loads(OWN.read_text(encoding="utf-8"))
        return Published(
            values["source"], {name: list(map(_row, values[name])) for name in ("table1", "table2", "table3")}
        )
    path = reference / "isjl_tables.json" if reference.is_dir() else reference
    try:
        reference_tables = {f"table{table['table']}": table for table in json.loads(path.read_bytes())["tables"]}
        tables = {
            name: [_renamed(row, names) for row in reference_tables[name]["rows"]] for name, names in _NAMES.items()
        }
        tables["table3"] = _by_policy(reference_tables["table3"]["rows"])
        return Published(f"{reference_tables['table1']['source']} ({path.name})", tables)
    except OSError as error:
        raise UserError(f"--reference {path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--reference {path}: not the tables of the paper ({error}): leave it out to use our own copy"
        ) from None


def _row(values: dict[str, Any]) -> PublishedRow:
    cells = {name: float(value) for name, value in values.items() if name not in ("policy", "alpha")}
    return PublishedRow(values["policy"], values.get("alpha"), cells)


def _renamed(row: dict[str, Any], names: dict[str, str]) -> PublishedRow:
    policy = row.get("policy", "ISJL")
    return PublishedRow(
        policy, row["alpha"] if policy == "ISJL" else None, {ours: float(row[its]) for ours, its in names.items()}
    )


def _by_policy(rows: list[dict[str, Any]]) -> list[PublishedRow]:
    """Table 3, which the reference file has a cell a row: a row a policy, its cells named with their slots."""
    cells_of: dict[tuple[str, int | None], dict[str, float]] = {}
    for row in rows:
        name = "throughput" if row["metric"] == "throughput" else "latency"
        key = row["policy"], row["alpha"] if row["policy"] == "ISJL" else None
        cells_of.setdefault(key, {})[f"{name}{row['B']}"] = float(row["value"])
    return [PublishedRow(policy, alpha, cells) for (policy, alpha), cells in cells_of.items()]
