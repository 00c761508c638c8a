"""Options that several commands take, and what their values may be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range of numbers that are numbers: nan and inf pass click's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; fails where it is none or out of range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


ALPHA = click.option("--alpha", type=FiniteRange(0), help="Gap in tokens that fairness is held against.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
RESULTS = click.option(
    "--results", type=click.Path(path_type=Path), default=Path("results"), help="Where published runs lie."
)
