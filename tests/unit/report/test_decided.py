"""The one place that decides words: headline rows, exploratory ones, zeros, equivalence, what could have been shown."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.measure.repeats import shift_of
from harness.report.sentences import change_with_interval, could_have_shown, shown_word, word_with_plan
from harness.report.support import support_of
from harness.report.words import (
    BETTER,
    NO_DIFFERENCE,
    SET_BY_ARRIVALS,
    WORSE,
    ComparedMetric,
    Rules,
    by_difference,
    decide,
    headline_of,
    own_word,
    read_headline,
    row_over_repeats,
)

HEADLINE = ("output_throughput", "ttft_s", "tpot_s")


def row(name: str, values: Sequence[tuple[float, float]]) -> ComparedMetric:
    is_difference = by_difference(name, values)
    shifts = [b - a if is_difference else math.log(b / a) for a, b in values]
    shift = shift_of(shifts, scale=max(max(pair) for pair in values))
    assert shift is not None
    return row_over_repeats(name, values, shift, is_difference)


def decided(rows: dict[str, ComparedMetric], rules: Rules | None = None) -> dict[str, ComparedMetric]:
    return decide(rows, HEADLINE, rules or Rules(), {}, {})


def pairs(change: float, spread: float, n: int = 5, level: float = 100.0) -> list[tuple[float, float]]:
    """n pairs whose log ratios have exactly this mean and deviation."""
    z = np.linspace(-1, 1, n)
    logs = math.log1p(change) + spread * z / z.std(ddof=1)
    return [(level, level * math.exp(one)) for one in logs]


def test_headline_rows_share_one_chance_in_twenty() -> None:
    # p of 0.03 is a word by itself, and none as the weakest of three.
    alone = row("ttft_s", pairs(0.02, 0.0139))
    assert alone.p is not None
    assert 0.02 < alone.p < 0.05
    together = decided({
        "output_throughput": row("output_throughput", pairs(0.0, 0.02)),
        "ttft_s": alone,
        "tpot_s": row("tpot_s", pairs(0.0, 0.03)),
        "e2el_s": row("e2el_s", pairs(0.02, 0.0139)),
    })  # fmt: skip
    assert together["ttft_s"].word == NO_DIFFERENCE
    assert "as one of 3" in word_with_plan(together["ttft_s"])
    assert own_word(together["ttft_s"]) == WORSE
    assert (together["e2el_s"].word, shown_word(together["e2el_s"])) == (WORSE, "worse (1 of 1)")
    assert (together["e2el_s"].role, together["ttft_s"].of) == ("exploratory", 3)
    by_itself = decided({"ttft_s": alone})
    assert by_itself["ttft_s"].word == WORSE


def test_a_share_that_falls_to_zero_is_better() -> None:
    found = decided({"violation_share": row("violation_share", [(0.76, 0.0), (0.75, 0.0), (0.77, 0.0)])})
    one = found["violation_share"]
    assert one.word == BETTER
    assert one.ratio == pytest.approx(0.0)
    assert one.difference is not None
    assert one.difference.high is not None
    assert one.difference.high < 0
    assert change_with_interval(one).startswith("-76 points (95 % interval -78.")
    # From nothing to something there is no ratio, and it is a word all the same.
    back = decided({"violation_share": row("violation_share", [(0.0, 0.76), (0.0, 0.75), (0.0, 0.77)])})
    assert (back["violation_share"].word, back["violation_share"].ratio) == (WORSE, None)


@pytest.mark.parametrize("name", ["gap_max", "busy_steps", "violation_share_kv", "violation_share_time"])
def test_shares_and_counts_are_compared_by_difference(name: str) -> None:
    assert by_difference(name, [(1.0, 2.0)])
    assert not by_difference("ttft_s", [(1.0, 2.0)])
    assert by_difference("ttft_s", [(1.0, 2.0), (0.0, 2.0)])


def test_what_could_have_been_shown_stands_beside_no_difference() -> None:
    one = decided({"ttft_s": row("ttft_s", pairs(0.01, 0.05))})["ttft_s"]
    assert one.word == NO_DIFFERENCE
    assert one.shown_from == pytest.approx(math.expm1(2.7764451 * 0.05 / math.sqrt(5)), rel=1e-6)
    assert could_have_shown(one) == "± 6.4 %; 7 repeats for ± 5 %"
    assert word_with_plan(one) == "no difference shown (± 6.4 %; 7 repeats for ± 5 %)"
    shown = decided({"ttft_s": row("ttft_s", pairs(-0.5, 0.05))})["ttft_s"]
    assert (shown.word, could_have_shown(shown)) == (BETTER, "")


def test_equal_within_two_percent_needs_the_whole_interval() -> None:
    rows = {"ttft_s": row("ttft_s", pairs(0.002, 0.005)), "tpot_s": row("tpot_s", pairs(0.015, 0.02))}
    found = decided(rows, Rules(equivalent=0.02))
    assert found["ttft_s"].word == "equal within 2 %"
    assert found["tpot_s"].word == NO_DIFFERENCE
    assert decided(rows)["ttft_s"].word == NO_DIFFERENCE


def test_a_withheld_row_takes_no_chance_from_the_others() -> None:
    rows = {
        "output_throughput": row("output_throughput", pairs(0.0, 0.02)),
        "ttft_s": row("ttft_s", pairs(0.02, 0.0139)),
    }
    found = decide(rows, HEADLINE, Rules(), {"output_throughput": (SET_BY_ARRIVALS, "why")}, {})
    assert (found["output_throughput"].word, found["output_throughput"].why) == (SET_BY_ARRIVALS, "why")
    assert (found["ttft_s"].word, found["ttft_s"].of) == (WORSE, 1)
    assert own_word(found["output_throughput"]) == SET_BY_ARRIVALS


def test_where_cost_models_disagree_a_steady_row_has_no_word_either() -> None:
    rows = {"output_throughput_steady": row("output_throughput_steady", pairs(0.1, 0.01))}
    found = decide(rows, (), Rules(), {}, {"output_throughput": support_of({"kernels": 8.0, "roofline": -3.0})})
    assert found["output_throughput_steady"].word == "models disagree"


def test_the_usual_headline_and_one_of_the_users() -> None:
    names = ["goodput", "output_throughput", "output_throughput_steady", "ttft_s", "ttft_s_steady", "ttft_s_steady.p99"]
    assert headline_of(names, Rules()) == ("goodput", "ttft_s_steady")
    assert headline_of(["output_throughput", "ttft_s", "tpot_s"], Rules()) == HEADLINE
    assert headline_of(names, Rules(("ttft_s.p99", "output_throughput"))) == (
        "ttft_s_steady.p99",
        "output_throughput_steady",
    )
    assert read_headline("output_throughput, ttft_s.p99,tpot_s.mean") == ("output_throughput", "ttft_s.p99", "tpot_s")
    for text, match in (
        ("speed", "no such metric"),
        ("", "one to three"),
        ("ttft_s,tpot_s,e2el_s,itl_s", "one to three"),
    ):
        with pytest.raises(UserError, match=match):
            read_headline(text)
