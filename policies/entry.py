"""What a policy of the catalog says of itself, and what it is made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policies.core import Policy, StepCosts
from policies.options import Option

# What a policy does with the output lengths that `--lengths` makes known.
IGNORED, USED, NEEDED = "ignored", "used", "needed"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy is made for: the engine's slots N and the step costs, None where no profile gives them."""

    slots: int
    costs: StepCosts | None


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy by name; `make` gets its typed options and what it is made for."""

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]
    make: Callable[[dict[str, Any], Setting], Policy]
    lengths: str = IGNORED
