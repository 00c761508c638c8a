"""Every engine makes runs of one kind."""

from __future__ import annotations

from typing import Any

from harness.engines.emulated import Emulated
from harness.engines.endpoint import EndpointEngine
from harness.engines.simulated import Simulated
from harness.engines.tokenstep import TokenStep
from harness.engines.vllm import Vllm
from harness.runs.schema import KIND_OF


def test_every_engine_has_one_kind() -> None:
    engines: dict[str, Any] = {
        "simulated": Simulated,
        "tokenstep": TokenStep,
        "emulated": Emulated,
        "vllm": Vllm,
        "endpoint": EndpointEngine,
    }
    assert {name: engine.kind for name, engine in engines.items()} == KIND_OF
