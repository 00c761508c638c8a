"""Prefill and decode apart is for the virtual-time engine alone."""

from __future__ import annotations

import pytest

from harness.core.errors import UserError
from harness.session.ask import asked_of
from harness.session.grid import plan_runs
from harness.session.one_run import trace_of
from harness.session.options import RunOptions

OPTIONS = RunOptions(
    gpus=("cpu",), policies=("v1", "pd"), workloads=("synthetic:mu_l=64,mu_o=32",), requests=10, slots=(4,)
)


@pytest.mark.parametrize("engine", ["emulated", "vllm"])
def test_no_other_engine_takes_it(engine: str) -> None:
    with pytest.raises(UserError, match=r"policy pd is prefill and decode on engines of their own.*--url"):
        plan_runs(asked_of(OPTIONS, engine), lambda workload, requests: trace_of(workload, requests, 0, "m"))
