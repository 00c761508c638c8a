"""Lists of one command: workloads and slots apart by commas, each a setting of its own for all policies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.session.ask import asked_of, split_workloads
from harness.session.grid import plan_runs
from harness.session.one_run import trace_of
from harness.session.options import read_options


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("sharegpt,lmsys", ["sharegpt", "lmsys"]),
        ("synthetic:mu_l=64,mu_o=32,LMSYS", ["synthetic:mu_l=64,mu_o=32", "LMSYS"]),
        ("lmsys,synthetic,mu_l=64", ["lmsys", "synthetic:mu_l=64"]),
        ("drift:distribution,order=paper,wildchat", ["drift:distribution,order=paper", "wildchat"]),
        ("file:a,b.jsonl", ["file:a,b.jsonl"]),
        ('file:"a,sharegpt",lmsys', ['file:"a,sharegpt"', "lmsys"]),
        ("file:a.jsonl,file:b.jsonl", ["file:a.jsonl", "file:b.jsonl"]),
        # A typo is a workload of its own, so that it is refused by its name.
        ("sharegpt,wildcat", ["sharegpt", "wildcat"]),
    ],
)
def test_a_comma_begins_a_workload_where_a_name_stands(text: str, names: list[str]) -> None:
    assert split_workloads([text]) == names


def test_each_slots_is_a_setting_for_every_policy_and_repeat() -> None:
    options = read_options(
        {
            "gpu": "l40s",
            "policy": "v1,v0",
            "workload": "sharegpt,lmsys",
            "slots": [64, 128],
            "requests": 20,
            "repeat": 2,
        }
    )
    asked = asked_of(options, "simulated")
    specs = plan_runs(asked, lambda workload, requests: trace_of(workload, requests, 0, asked.template.model))
    places = [(spec.workload, spec.slots, spec.repeat, spec.policy) for spec in specs]
    assert len(set(places)) == len(places) == 2 * 2 * 2 * 2
    # The arms of a pair run one after the other.
    assert all(a[:3] == b[:3] for a, b in zip(places[::2], places[1::2], strict=True))


def test_the_budget_holds_the_most_slots() -> None:
    options = read_options(
        {"gpu": "l40s", "policy": "v1", "workload": "lmsys", "slots": [64, 512], "token_budget": 256}
    )
    asked = asked_of(options, "simulated")
    with pytest.raises(UserError, match="--token-budget 256 is below --slots 512"):
        plan_runs(asked, lambda workload, _: trace_of(workload, 20, 0, asked.template.model))


def test_a_traces_own_times_are_one_sample_unless_repeats_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    rows = [{"timestamp_s": i / 10, "prompt_tokens": 50, "output_tokens": 9} for i in range(20)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = {"gpu": "l40s", "policy": "v1,v0", "workload": f"file:{file}", "requests": 10}

    def repeats(**more: object) -> set[int]:
        asked = asked_of(read_options(given | more), "simulated")
        specs = plan_runs(asked, lambda workload, requests: trace_of(workload, requests, 0, asked.template.model))
        return {spec.repeat for spec in specs}

    assert repeats(arrival="trace:scale=0.5") == {0}
    assert repeats(arrival="trace:scale=0.5", repeat=2) == {0, 1}
    assert repeats(rate=5) == set(range(5))
