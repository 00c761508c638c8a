"""The command that a cell's run.json has gives its options back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from harness.cli.run import run
from harness.session.grid_command import command_of
from harness.session.options import RunOptions, read_options


@pytest.mark.parametrize(
    "given",
    [
        {"gpu": "l40s", "policy": ["v1", "eb:k=4,window=50"], "workload": "lmsys", "slots": [16], "rate": [0.5, 20]},
        {"gpu": "l40s", "policy": "v1", "workload": "file:a b.jsonl", "prefix_caching": 0.25, "alone": True},
        {"url": ["http://x:1", "http://x:2"], "workload": "lmsys", "concurrency": 8, "ignore_eos": False},
        {"url": "http://x:1", "field": ["a=1", 'b={"c": 2}'], "timeout": 3.5, "sessions": True, "think_time": 2.0},
        {"gpu": "h200", "policy": "v1", "workload": "lmsys", "slo": "ttft_s=1,tpot_s=0.05", "repeat": 3, "seed": 7},
    ],
)
def test_the_words_are_read_as_the_options_they_were_made_of(given: dict[str, Any]) -> None:
    options = read_options(given)
    words = shlex.split(shlex.join(command_of(options, Path("there"))))
    assert words[:2] == ["bench", "run"]
    parsed = dict(run.make_context("run", words[2:]).params)
    assert parsed["out"] == Path("there")
    fields = RunOptions.__dataclass_fields__
    assert RunOptions(**{name: value for name, value in parsed.items() if name in fields}) == options
