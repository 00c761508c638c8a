"""Tables of one's own: measured attention calls, folders of measured layers, and what is wrong with some."""

from __future__ import annotations

import itertools
from math import log2
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import USER_ERRORS, UserError
from harness.core.host import Host
from harness.profiles.kernels.calls import COLUMNS, MeasuredCalls, read_calls
from harness.profiles.kernels.model import Kernels
from harness.profiles.pair import load_pair
from tests.support.places import SHARED

CHUNKS, BEFORE, DECODES, CONTEXT = (16, 64, 256), (0, 64, 512), (1, 8, 64), (16, 256, 4096)


def microseconds(chunk: float, before: float, decodes: float, context: float) -> float:
    """A made-up kernel, straight in every logarithm that the table is interpolated in but for its sums."""
    return 5 + 0.01 * chunk * (before + chunk / 2) + 0.002 * decodes * context


def table(path: Path, without: tuple[float, ...] = ()) -> Path:
    keys = [
        *itertools.product(CHUNKS, BEFORE, (0,), (0,)),
        *itertools.product((0,), (0,), DECODES, CONTEXT),
        *itertools.product(CHUNKS, BEFORE, DECODES, CONTEXT),
    ]
    lines = [",".join(COLUMNS)]
    lines += [",".join(map(str, (*key, microseconds(*key)))) for key in keys if key != without]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_measured_calls_go_through_their_points(tmp_path: Path) -> None:
    calls = MeasuredCalls.of(read_calls(table(tmp_path / "calls.csv")), 10)
    for chunk, before, decodes, context in itertools.product(CHUNKS, BEFORE, DECODES, CONTEXT):
        work = chunk * (before + chunk / 2)
        both = calls.both(chunk, work, (1, chunk), decodes, decodes * context, 0.0)
        assert both == pytest.approx(1e-5 * microseconds(chunk, before, decodes, context), rel=1e-12)
        assert calls.prompts(chunk, work, (1, chunk)) == pytest.approx(
            1e-5 * microseconds(chunk, before, 0, 0), rel=1e-12
        )
    row = calls.row(8)
    assert np.interp(256, calls.context.points, row) == pytest.approx(1e-5 * microseconds(0, 0, 8, 256), rel=1e-6)
    # Several prompts are one chunk with the same work: four of 64 tokens, 256 tokens behind none would be more work.
    work = 4 * 64**2 / 2
    assert calls.prompts(256, work, (4, 64)) == calls.prompts(256, 256**2 / 2, (1, 256))


def test_between_points_it_is_straight_in_the_logarithms(tmp_path: Path) -> None:
    calls = MeasuredCalls.of(read_calls(table(tmp_path / "calls.csv")), 1)
    low, high = (1e-6 * microseconds(64, 64, decodes, 256) for decodes in (8, 64))
    part = (log2(20 + 16) - log2(8 + 16)) / (log2(64 + 16) - log2(8 + 16))
    told = calls.both(64, 64 * (64 + 32), (1, 64), 20, 20 * 256, 0.0)
    assert told == pytest.approx(low ** (1 - part) * high**part, rel=1e-12)


def test_what_lies_beyond_is_named_and_grows(tmp_path: Path) -> None:
    calls = MeasuredCalls.of(read_calls(table(tmp_path / "calls.csv")), 1)
    assert calls.left_by((1, 256), 64, 64 * 4096) == ""
    assert calls.left_by((1, 2000), 64, 64 * 256) == "prompt length"
    assert calls.left_by((1, 256), 65, 65 * 256) == "decodes"
    assert calls.left_by((1, 256), 1, 5000) == "decode context"
    alone = [float(np.interp(256, calls.context.points, calls.row(n))) for n in (64, 128)]
    more = calls.both(256, 256 * 128, (1, 256), 128, 128 * 256, alone[1])
    assert more - calls.both(256, 256 * 128, (1, 256), 64, 64 * 256, alone[0]) == pytest.approx(alone[1] - alone[0])


def test_a_calls_file_stands_in_for_tables_and_law(tmp_path: Path) -> None:
    path = table(tmp_path / "calls.csv")
    pair = load_pair("h200", "Qwen3-8B")
    own, usual = pair.cost(f"kernels:{path}"), pair.cost("kernels")
    assert isinstance(own, Kernels)
    assert isinstance(usual, Kernels)
    assert own.body == usual.body
    assert own.about["mixed_call"] == "measured"
    assert own.about["attention_calls"] == "calls.csv"
    assert len(own.about["attention_sha256"]) == 64
    attention = 36e-6 * microseconds(256, 64, 8, 256)
    rest = own.body[264] + own.head[9] + 2.5e-3 + 8 * 5e-6
    assert own.seconds(256, 256 * 192, 8, 8 * 256, 0) == pytest.approx(rest + attention, rel=1e-9)
    assert "kernel times of" in pair.describe(f"kernels:{path}")


@pytest.mark.parametrize("hole", [(64, 64, 8, 256), (0, 0, 8, 256), (64, 64, 0, 0)])
def test_a_table_with_a_hole_keeps_what_is_whole(tmp_path: Path, hole: tuple[float, ...]) -> None:
    """A grid without the hole is still whole, and says how much of the file it takes; what is gone is not guessed."""
    calls = MeasuredCalls.of(read_calls(table(tmp_path / "calls.csv", hole)), 1)
    assert calls.most_decodes == 64
    assert calls.used == (54 if hole == (64, 64, 8, 256) else 81)


def test_a_table_that_is_mostly_holes_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "calls.csv")
    # One chunk of three has 180 calls more than the others.
    more = [f"16,{before},{n},{c},9" for before in BEFORE for n in range(10, 40) for c in (16, 256)]
    path.write_text(path.read_text() + "\n".join(more))
    with pytest.raises(UserError, match=r"its .* mixed calls have holes, the largest whole grid takes"):
        MeasuredCalls.of(read_calls(path), 1)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["a,b"], "its first line must be prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"),
        ([], "its first line must be"),
        ([",".join(COLUMNS), "1,0,0,0"], "line 2: not a call"),
        ([",".join(COLUMNS), "1,0,0,0,-3"], "line 2: not a call"),
        ([",".join(COLUMNS), "0,0,0,0,3"], "line 2: not a call"),
        ([",".join(COLUMNS), "0,16,1,16,3"], "line 2: not a call"),
        ([",".join(COLUMNS), "1,0,1,0,3"], "line 2: not a call"),
        ([",".join(COLUMNS), "nan,0,0,0,3"], "line 2: not a call"),
        ([",".join(COLUMNS), "16,0,0,0,3"], "too few mixed calls, or holes among them"),
    ],
)
def test_files_that_are_no_table_of_calls(tmp_path: Path, lines: list[str], why: str) -> None:
    path = tmp_path / "calls.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(USER_ERRORS) as error:
        load_pair("h200", "Qwen3-8B").cost(f"kernels:{path}")
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(USER_ERRORS, match="no such file"):
        load_pair("h200", "Qwen3-8B").cost(f"kernels:{tmp_path / 'none.csv'}")
    with pytest.raises(USER_ERRORS, match=r"dense\.csv: no such file"):
        load_pair("h200", "Qwen3-8B").cost(f"kernels:{tmp_path}")


def test_a_folder_of_measured_layers_is_the_sum_of_them(tmp_path: Path) -> None:
    table(tmp_path / "attention.csv")
    (tmp_path / "dense.csv").write_text(dense_table({"embedding": (2, 2)}))
    (tmp_path / "per_sequence.csv").write_text("layer,sequences,time_us\nlm_head,1,50\nlm_head,256,50\n")
    pair = load_pair("l40s", "Qwen3-8B")
    cost = pair.cost(f"kernels:{tmp_path}", Host(1e-3, 0.0))
    assert isinstance(cost, Kernels)
    # One decode of context 256: 36 layers of four matrices and of attention, the embedding and the head once.
    layers = 36 * (4 * 10 + microseconds(0, 0, 1, 256))
    assert cost.seconds(0, 0.0, 1, 256, 0) == pytest.approx(1e-6 * (layers + 2 + 50) + 1e-3, rel=1e-6)
    assert sorted(cost.about["tables"]) == ["attention.csv", "dense.csv", "per_sequence.csv"]
    for name, line, why in (
        ("dense.csv", "qkv_proj,2,0", r"dense\.csv, line 2: '0' must be a number above 0"),
        ("dense.csv", "qkv_proj,2,3", "qkv_proj has one size alone"),
        ("dense.csv", "qkv_proj,2", r"must be a CSV file of layer,tokens,time_us"),
        ("dense.csv", "act_fn,1,3\nact_fn,64,3", "no qkv_proj, o_proj, gate_up_proj, down_proj in it"),
    ):
        (tmp_path / name).write_text(f"layer,tokens,time_us\n{line}\n")
        with pytest.raises(UserError, match=why):
            pair.cost(f"kernels:{tmp_path}")
    (tmp_path / "dense.csv").write_text(dense_table() + "act_fn,1,3\nact_fn,64,3\n")
    with pytest.raises(UserError, match="act_fn ends at 64 tokens, others at 1024"):
        pair.cost(f"kernels:{tmp_path}")
    (tmp_path / "dense.csv").write_text(dense_table())
    (tmp_path / "per_sequence.csv").write_text("layer,sequences,time_us\nsampler,1,50\nsampler,256,50\n")
    with pytest.raises(UserError, match=r"per_sequence\.csv: no lm_head in it"):
        pair.cost(f"kernels:{tmp_path}")


def dense_table(more: dict[str, tuple[float, float]] | None = None) -> str:
    """dense.csv: each matrix of a layer takes 10 µs for one token and 100 for 1,024, and `more` what it says."""
    layers = dict.fromkeys(("qkv_proj", "o_proj", "gate_up_proj", "down_proj"), (10.0, 100.0)) | (more or {})
    lines = [f"{name},1,{low}\n{name},1024,{high}\n" for name, (low, high) in layers.items()]
    return "".join(["layer,tokens,time_us\n", *lines])


def test_tables_of_another_profiler_are_read_as_they_are() -> None:
    folder = SHARED / "reference" / "llmservingsim" / "rtxpro6000-qwen3-30b-a3b"
    if not folder.is_dir():
        pytest.skip("no ../shared/reference next to the repository: its tables were not read")
    cost = load_pair("rtxpro6000", "Qwen3-30B-A3B").cost(f"kernels:{folder}")
    assert isinstance(cost, Kernels)
    usual = load_pair("rtxpro6000", "Qwen3-30B-A3B").cost("kernels")
    for step in ((2048, 2048.0 * 1024, 0, 0, 0), (0, 0.0, 128, 128 * 1000, 0), (1024, 1024.0 * 512, 64, 64_000, 0)):
        assert cost.seconds(*step) == pytest.approx(usual.seconds(*step), rel=0.4)
