"""`bench policy`: begun, tried, and what is told of a policy that is not in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Bench

HEAD = "from policies.own import *\nimport random\nclass Mine(OwnPolicy):\n"
# Without vLLM: tests/conformance has it.
CHECK = ("policy", "check", "--no-vllm", "--traces", "12", "./mine.py:Mine")


def test_a_new_policy_is_in_order_and_runs(bench: Bench, tmp_path: Path) -> None:
    assert bench("policy", "new", "mine.py").code == 0
    refused = bench("policy", "new", "mine.py")
    assert refused.code == 2
    assert "mine.py: there already: name a new file" in refused.err
    done = bench(*CHECK, "--json")
    assert done.code == 0, done.err
    found = done.json
    assert found["problems"] == []
    assert found["traces"] == 12
    assert found["steps"] > 1000
    assert found["vllm"] is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "    def plan(self, view): return {}['x']\n",
            "raised KeyError ('x') at step 0 in plan, line 4 of mine.py, in case 0",
        ),
        (
            "    def __init__(self, **given): 1 / 0\n    def plan(self, view): pass\n",
            "at construction, line 4 of mine.py",
        ),
        ("    def plan(self, view): return DECODE\n", "while nothing can decode, in case 0 ("),
        (
            "    def plan(self, view): return StepPlan(Phase.MIXED, random.choice((1, 2, 9)))\n",
            "decides otherwise when run again",
        ),
        (
            "    def __init__(self, **g): self.order = Ranked(lambda r: r.num_prompt_tokens)\n"
            "    def plan(self, view): return MIXED\n",
            "MAX_OVERTAKES allows 0: declare more, or None",
        ),
    ],
)
def test_what_is_not_in_order_is_told(bench: Bench, tmp_path: Path, body: str, told: str) -> None:
    (tmp_path / "mine.py").write_text(HEAD + body)
    done = bench(*CHECK)
    assert done.code == (2 if "construction" in told else 1)
    assert told in done.err
    assert "fault of bench" not in done.err


def test_a_file_that_holds_no_policy(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import numpy\n" + HEAD + "    pass\n")
    done = bench(*CHECK)
    assert done.code == 2
    assert "./mine.py: line 1: imports numpy" in done.err
