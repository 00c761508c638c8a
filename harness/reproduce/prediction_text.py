"""What `bench validate` says: measured, predicted and the error, a line a quantity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.reproduce.prediction import Prediction, Score

if TYPE_CHECKING:
    from rich.console import RenderableType


def prediction_document(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The predictions as JSON values: an entry a run and cost model."""
    return [
        {
            "run": one.run.where,
            "requests": len(one.run.arrival),
            "cost_model": one.model,
            "description": one.description,
            "host": {"t0_s": one.host.step_s, "h_s": one.host.decode_s, "fitted_on_this_run": one.fitted or None},
            "scores": [_score(score) for score in one.scores],
        }
        for one in predictions
    ]


def _score(score: Score) -> dict[str, Any]:
    return {
        "name": score.name,
        "unit": score.unit,
        "measured": score.measured,
        "predicted": score.predicted,
        "error": score.error,
        "median_absolute_error_per_request": score.median_error,
        "correlation": score.correlation,
    }


def prediction_table(prediction: Prediction) -> RenderableType:
    """A table a prediction, with what was fitted on what beneath it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = f"{prediction.run.where}: {len(prediction.run.arrival):,} requests"
    table = Table("", "measured", "predicted", "error", "median |error| a request", "correlation", title=title)
    table.title_justify, table.title_style = "left", "bold"
    for score in prediction.scores:
        median = "" if score.median_error is None else f"{100 * score.median_error:.1f} %"
        together = "" if score.correlation is None else f"{score.correlation:.3f}"
        values = (f"{value:,.4g} {score.unit}" for value in (score.measured, score.predicted))
        table.add_row(score.name, *values, f"{100 * score.error:+.1f} %", median, together)
    return Group(table, Text(f"  {_about(prediction)}"))


def _about(prediction: Prediction) -> str:
    host = prediction.host
    if prediction.model == "linear":
        return prediction.description
    told = f"t0 = {host.step_s * 1e3:.4g} ms, h = {host.decode_s * 1e6:.4g} µs"
    how = {"host": "both fitted on this run", "t0": "t0 fitted on this run, h left out"}.get(prediction.fitted)
    return f"{prediction.description}; host {told}" + (f", {how}: no prediction of it" if how else "")
