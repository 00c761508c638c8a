"""A run of ours in the schemas of other tools, made from its tables by their definitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from harness.published.export_llmd import to_llmd
from harness.published.export_vllm import to_vllm
from harness.runs.run import Run

EXPORTS: dict[str, Callable[[Run], dict[str, Any]]] = {"vllm": to_vllm, "llm-d": to_llmd}


def as_text(document: dict[str, Any]) -> str:
    """A document as JSON, a key a line."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
