"""How often the simulation had the sign of a published change right, by cost model and GPU: docs/fidelity.md tells."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator

from harness.pages.assets import document
from harness.pages.boards import Board
from harness.pages.traffic import gpu_label

# Published changes of less, %, have a sign by chance.
LEAST = 5.0
_MODELS = ("linear", "roofline", "kernels")


def signs_of(board: Board) -> str:
    """A sentence on the signs of published changes under the board's cost model; empty where nobody knows them."""
    costs = board.reference.first.run.manifest.get("provenance", {}).get("cost_model", {})
    model = str(costs.get("name")) if isinstance(costs, dict) else ""
    told = signs_held().get(model)
    if board.kind not in ("simulated", "emulated") or told is None:
        return ""
    right, of = signs_by_gpu().get((model, board.spec.gpu), (0, 0))
    here = f", {right} of {of} on the {gpu_label(board.spec.gpu)}" if of else ", none of them on this GPU"
    return f"With {model} step costs the sign of {told} published changes of throughput came out right{here}."


@functools.cache
def signs_held() -> dict[str, str]:
    """By cost model, `13 of 15`: as the document sums up; empty where it is not there."""
    return {
        row["model"]: row["signs held"]
        for row in _rows("change of")
        if row["change of"] == "throughput" and re.fullmatch(r"\d+ of \d+", row["signs held"])
    }


@functools.cache
def signs_by_gpu() -> dict[tuple[str, str], tuple[int, int]]:
    """By cost model and GPU, of the changes that the document lists and sums up: how many signs are right, of how many.

    What it scores apart is left out: a figure of unknown protocol, vLLM's first engine, another model.
    """
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in _rows("experiment", "cell", "policy", "published"):
        gpu, *rest = row["cell"].split()
        published = _number(row["published"])
        apart = row["experiment"] == "Figure 3" or row["policy"] == "v0-engine" or "30B" in rest
        if apart or published is None or abs(published) <= LEAST:
            continue
        for model in _MODELS:
            change = _number(row.get(model, ""))
            if change is not None:
                counts = found[model, gpu]
                counts[0] += (change > 0) == (published > 0)
                counts[1] += 1
    return {key: (right, of) for key, (right, of) in found.items()}


def _rows(*columns: str) -> Iterator[dict[str, str]]:
    """The rows of the document's first table that begins with these columns, each by column."""
    header: list[str] = []
    for line in document("fidelity.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if header and not cells:
            return
        if header and len(cells) == len(header) and not set(cells[0]) <= {"-"}:
            yield dict(zip(header, cells, strict=True))
        elif cells[: len(columns)] == list(columns):
            header = cells


def _number(text: str) -> float | None:
    try:
        return float(text.replace("−", "-"))
    except ValueError:
        return None
