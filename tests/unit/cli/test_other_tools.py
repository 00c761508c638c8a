"""Options of other tools: the line names the option of ours."""

from __future__ import annotations

import pytest

from harness.cli.other_tools import ours_for

KNOWN = ["--rate", "--requests", "--concurrency", "--out", "--model", "--warmup"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--num-prompts", "--requests"),
        ("--num_prompts", "--requests"),
        ("--request-rate", "--rate R, or --arrival offline"),
        ("--max-concurrency", "--concurrency"),
        ("--goodput", "--slo"),
        ("--dataset-name", "--workload"),
        ("--base-url", "--url"),
        ("--port", "--url"),
        ("--random-input-len", "synthetic:mu_l"),
        ("--max-seconds", "--max-duration"),
        ("--burstiness", "gamma"),
        ("--api-key", "--key-env"),
        ("--header", "--header-env"),
        ("--save-result", "--out"),
        ("--num-warmup", "--warmup"),
        # What is nearly ours is ours.
        ("--request", "--requests"),
        ("--concurency", "--concurrency"),
        ("--modl", "--model"),
    ],
)
def test_ours_is_named(theirs: str, ours: str) -> None:
    assert ours in ours_for(theirs, KNOWN)


def test_nothing_is_guessed() -> None:
    assert not ours_for("--zzz", KNOWN)
