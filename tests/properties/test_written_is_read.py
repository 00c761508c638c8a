"""Whatever bench writes, bench can read: random rows, notes and states through writer, tables, manifest and JSON."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.count import MOST, count_of
from harness.core.records import FINISHES, MODES, PHASES, PRODUCED, REQUESTS, STEPS
from harness.core.text import visible
from harness.measure.columns import LONGEST_S
from harness.report.document import runs_document
from harness.runs.run import load_run
from harness.runs.tables import MOST_A_STEP
from harness.runs.writer import RunWriter, recover
from tests.support.runfactory import SPEC, batch_of

# A run is written and read in a tenth of a second: a few here, many in `make soak`.
RUNS = 1000 if settings.default is not None and settings.default.max_examples > 1000 else 12
# Any that UTF-8 can write: lone surrogates are no text.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COUNTS = st.one_of(st.integers(0, MOST), st.integers(0, 300))
OF_A_STEP = st.one_of(st.integers(0, MOST_A_STEP), st.integers(0, 300))
TIMES = st.one_of(st.floats(0, LONGEST_S), st.floats(0, 60))
SUMS = [name for name in PRODUCED if name.endswith("_sum")]


def or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


REQUEST = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "session": or_none(COUNTS),
        "turn": or_none(COUNTS),
        "prompt_tokens": COUNTS,
        "expected_output_tokens": or_none(COUNTS),
        "due_s": or_none(TIMES),
        "sent_s": or_none(TIMES),
        "first_token_s": or_none(TIMES),
        "last_token_s": or_none(TIMES),
        "done_s": or_none(TIMES),
        "output_tokens": COUNTS,
        "preemptions": or_none(COUNTS),
        "cached_tokens": or_none(COUNTS),
        "token_gaps_s": or_none(st.lists(TIMES, max_size=3)),
        "finish": st.sampled_from(FINISHES),
        "error": or_none(TEXTS),
    }
)
STEP = st.fixed_dictionaries(
    {
        "t_s": TIMES,
        "duration_s": TIMES,
        "phase": st.sampled_from(PHASES),
        **dict.fromkeys(("prefill_tokens", "decode_requests", "running", "waiting", "preempted"), OF_A_STEP),
        "kv_tokens": COUNTS,
        "policy_k": or_none(st.integers(-(2**63), 2**63 - 1)),
        "policy_mode": or_none(st.sampled_from(MODES)),
        "policy_theta": or_none(st.floats()),
        "correction_capped": or_none(st.booleans()),
    }
)
PRODUCING = or_none(st.fixed_dictionaries({name: COUNTS if name in SUMS else OF_A_STEP for name in PRODUCED}))
ROWS = st.lists(REQUEST, max_size=12).map(lambda rows: [row | {"row": i} for i, row in enumerate(rows)])
STEPS_OF_A_RUN = st.lists(STEP, max_size=12)


@settings(max_examples=RUNS, deadline=None)
@given(
    requests=ROWS,
    steps=STEPS_OF_A_RUN,
    producing=PRODUCING,
    notes=st.lists(TEXTS, max_size=2),
    reason=or_none(TEXTS),
    said=st.recursive(TEXTS | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
                      | st.booleans() | st.none(), lambda inner: st.lists(inner, max_size=2)
                      | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=5),
    status=st.sampled_from(["complete", "interrupted", "failed"]),
)  # fmt: skip
def test_what_is_written_is_read(
    requests: list[dict[str, Any]],
    steps: list[dict[str, Any]],
    producing: dict[str, int] | None,
    notes: list[str],
    reason: str | None,
    said: Any,
    status: str,
) -> None:
    steps = [step | (producing or {}) for step in steps]
    with tempfile.TemporaryDirectory() as place:
        writer = RunWriter.create(
            Path(place), SPEC, kind="simulated", provenance={"said": said}, planned_requests=len(requests), notes=notes
        )
        # In pieces, as a run that goes on writes them.
        for some in (requests[1::2], requests[::2]):
            writer.add_requests(batch_of(REQUESTS, some))
        writer.add_steps(batch_of(STEPS, steps))
        path = writer.finish(status, reason)
        run = load_run(path)
        for name, rows, table in (("requests", requests, run.requests()), ("steps", steps, run.steps())):
            read = [] if table is None else table.to_pylist()
            for wrote, have in zip(rows, read, strict=True):
                assert {key: repr(have[key]) for key in wrote} == {key: repr(value) for key, value in wrote.items()}, (
                    name
                )
        assert run.manifest["notes"] == notes
        assert run.status == status
        assert run.manifest["reason"] == reason
        assert run.manifest["counts"]["requests"] == len(requests)
        assert (path / "run.json").read_text() == visible((path / "run.json").read_text())
        document = orjson.loads(orjson.dumps(runs_document([run])))
        assert json.loads(visible(json.dumps(document, ensure_ascii=False))) == document
        assert recover(path) == (path, False)


@given(st.integers() | st.floats() | st.booleans() | st.text(max_size=3) | st.none())
def test_a_count_is_taken_where_the_tables_take_it(value: Any) -> None:
    count = count_of(value)
    assert count is None or (0 <= count <= MOST and count == value)
