"""Step costs from measured kernels: interpolation, holes, the law of mixed calls, and the sum of a step by hand."""

from __future__ import annotations

import csv
from math import exp2, log2, sqrt
from pathlib import Path

import numpy as np
import pytest

from harness.core.host import Host
from harness.profiles.kernels.build import build, captured, find_kernels
from harness.profiles.kernels.curves import Curve, Surface, filled_decode, filled_prefill
from harness.profiles.kernels.measured import Measured, as_stored, embedded, read_measured, write_measured
from harness.profiles.kernels.mixed import Alone, PackedTiles, PaddedTiles
from harness.profiles.kernels.model import Kernels
from harness.profiles.kernels.operations import AttentionKernel, Gemm, head_gemm, layer_gemms, operations_of
from harness.profiles.kernels.package import NoSuchTimesError, from_package, installed
from harness.profiles.kernels.shape import Shape
from harness.profiles.kernels.systems import MIB, SYSTEMS
from harness.profiles.models import all_model_names, find_model
from harness.profiles.pair import load_pair
from tests.support.places import SHARED

QWEN = Shape(36, 4096, 32, 8, 128, 12288, 151936)
HOST = Host()
GPUS = {"h200": "fa3", "l40s": "fa2", "b300": "b300"}


def kernels(gpu: str, shape: Shape = QWEN, tp: int = 1, host: Host = HOST) -> Kernels:
    bandwidth = {"h200": 4.8e12, "l40s": 0.864e12, "b300": 8e12}[gpu]
    return build(gpu, shape, tp, bandwidth, GPUS[gpu], host.step_s, host.decode_s)


def test_a_curve_goes_through_its_points_and_straight_between_their_logarithms() -> None:
    curve = Curve(np.array([1.0, 4.0, 64.0]), np.array([2.0, 4.0, 4.0]))
    assert curve.at([1, 4, 64]).tolist() == pytest.approx([2, 4, 4], rel=1e-15)
    assert float(curve.at(2)) == pytest.approx(sqrt(8), rel=1e-15)  # half way in both logarithms
    assert float(curve.at(0.5)) == pytest.approx(2, rel=1e-15)
    assert float(curve.at(128)) == pytest.approx(8, rel=1e-15)  # in proportion to the size


def test_a_surface_is_bilinear_in_logarithms() -> None:
    surface = Surface(
        np.array([1.0, 4.0]), np.array([2.0, 8.0]), np.array([[1.0, 4.0], [2.0, 16.0]]), np.full((2, 2), True)
    )
    corners = log2(1), log2(4), log2(2), log2(16)
    found = surface.refined(np.array([2.0]), np.array([4.0]))[0, 0]
    assert found == pytest.approx(exp2(sum(corners) / 4), rel=1e-14)
    assert surface.refined(surface.batch, surface.length) == pytest.approx(surface.seconds, rel=1e-14)


def test_holes_of_a_decode_table_pay_for_what_they_read() -> None:
    # Reading costs 1 s a token wherever all was measured; a batch of 4 was measured up to a context of 2.
    batch, length = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 4.0, 8.0])
    seconds = np.array([[11, 12, 14, 18], [22, 24, 28, np.nan], [50, 54, np.nan, np.nan]])
    surface = filled_decode(batch, length, seconds)
    assert surface.seconds.tolist() == [[11, 12, 14, 18], [22, 24, 28, 36], [50, 54, 62, 78]]
    assert surface.measured.sum() == 9
    assert surface.most_tokens == 8


def test_holes_of_a_prefill_table_are_twice_the_prompts() -> None:
    surface = filled_prefill(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([[1, 3], [2, np.nan]]))
    assert surface.seconds[:, :2].tolist() == [[1, 3], [2, 6]]
    # Far beyond the longest prompt the time grows with its square.
    assert surface.length[-1] == 128
    assert surface.seconds[0, -1] == 3 * 64**2


def test_a_hole_is_filled_to_within_a_fifth_of_what_was_measured() -> None:
    """Every batch's last measured context taken away and told from the rest: the rule on real tables."""
    errors = []
    for gpu in SYSTEMS:
        one = embedded(gpu)[AttentionKernel("decode", 32, 8, 128, "bfloat16").name]
        assert one.y is not None
        for batch in np.unique(one.x)[3:]:
            last = one.y == one.y[one.x == batch].max()
            kept = ~(last & (one.x == batch))
            told = Measured(one.x[kept], one.y[kept], one.seconds[kept], "").surface("decode")
            i, j = np.searchsorted(told.batch, batch), np.searchsorted(told.length, one.y[~kept][0])
            if j < len(told.length):
                errors.append(told.seconds[i, j] / one.seconds[~kept][0] - 1)
    assert len(errors) > 60
    assert np.median(np.abs(errors)) < 0.05
    assert np.quantile(np.abs(errors), 0.9) < 0.2


@pytest.mark.parametrize(
    ("tokens", "padded"), [(1, 1), (3, 4), (5, 8), (9, 16), (256, 256), (257, 272), (500, 512), (512, 512), (513, 513)]
)
def test_a_step_is_padded_to_the_sizes_of_cuda_graphs(tokens: int, padded: int) -> None:
    assert captured(np.array([float(tokens)])).tolist() == [padded]


def test_fa2_gives_each_decode_and_head_a_tile_of_its_own() -> None:
    law = PaddedTiles(1e-12, 4, 100, 4 * 128 / (100 * MIB), "law, checked")
    # x = 4·S·d / L2 is 0.5 up to S = 102,400: the decode kernel as it is, or the tiles where they take longer.
    assert law.seconds(100, 102_400, 1e-3) == 1e-3
    assert law.seconds(100, 102_400, 1e-6) == pytest.approx(64 * 1e-12 * 102_400)
    # At x = 2 and beyond every head reads for itself: 4 times where each SM has a decode, less where many are idle.
    assert law.seconds(100, 409_600, 1e-3) == pytest.approx(4e-3)
    assert law.seconds(50, 1_000_000, 1e-3) == pytest.approx(2e-3)
    assert law.seconds(25, 1_000_000, 1e-3) == 1e-3
    assert law.seconds(300, 1_000_000, 1e-3) == pytest.approx(4e-3)
    # Half way between: x = 1.25.
    assert law.seconds(100, 256_000, 1e-3) == pytest.approx(2.5e-3)


def test_fa3_packs_the_heads_of_a_group_into_a_tile() -> None:
    law = PackedTiles(1e-12, 4, "law, unmeasured")
    assert law.seconds(100, 100_000, 1e-3) == 1e-3
    assert law.seconds(100, 100_000, 1e-6) == pytest.approx(128 * 1e-12 * 100_000 / 4)
    assert Alone().seconds(100, 100_000, 1e-3) == 1e-3


@pytest.mark.parametrize(
    ("folder", "group", "sms", "l2", "most"),
    [
        ("rtxpro6000-llama-3.1-8b", 4, 188, 128 * MIB, 0.12),  # 64, 0.5 and 2 were read off this one
        ("rtxpro6000-qwen3-32b", 8, 188, 128 * MIB, 0.10),
        ("rtxpro6000-qwen3-30b-a3b", 8, 188, 128 * MIB, 0.10),
        ("rtx4090-llama-3.1-8b", 4, 128, 72 * MIB, 0.10),
    ],
)
def test_the_law_of_fa2_against_measured_mixed_calls(folder: str, group: float, sms: int, l2: int, most: float) -> None:
    path = SHARED / "reference" / "llmservingsim" / folder / "attention.csv"
    if not path.is_file():
        pytest.skip("no ../shared/reference next to the repository: the law was not checked against mixed calls")
    rows = [tuple(map(float, row)) for row in list(csv.reader(path.read_text().splitlines()))[1:]]
    times = {row[:4]: row[4] * 1e-6 for row in rows}
    prompt_s = times[2048, 0, 0, 0] + times[2048, 2048, 0, 0]  # one of 4,096 tokens in two chunks
    law = PaddedTiles(prompt_s / (4096**2 / 2), group, sms, 4 * 128 / l2, "")
    errors, sums = [], []
    for (chunk, before, decodes, context), seconds in times.items():
        if chunk and decodes and decodes * context >= 65_536:
            prefill, alone = times.get((chunk, before, 0, 0)), times.get((0, 0, decodes, context))
            if prefill is not None and alone is not None:
                told = prefill + law.seconds(int(decodes), int(decodes * context), alone)
                errors.append(abs(told / seconds - 1))
                sums.append(abs((prefill + alone) / seconds - 1))
    assert len(errors) > 1000
    assert np.median(errors) < most
    assert np.median(sums) > 0.35


@pytest.mark.parametrize("gpu", GPUS)
def test_a_step_is_the_sum_of_its_kernels(gpu: str) -> None:
    """Body, head, attention and host, each looked up here by its own."""
    cost, found = kernels(gpu), find_kernels(gpu, QWEN, 1)
    bandwidth = {"h200": 4.8e12, "l40s": 0.864e12, "b300": 8e12}[gpu]

    def body(tokens: int) -> float:
        one = sum(layers * float(found[gemm].curve().at(tokens)) for gemm, layers in layer_gemms(QWEN).items())
        moved = tokens * 2 * (8 * 4096 + 3 * 12288 + 4 * (32 + 2 * 8) * 128)
        return one + 36 * (moved / (0.8 * bandwidth) + 8e-6)

    def head(sequences: int) -> float:
        moved = 12 * 151936 * sequences / (0.8 * bandwidth)
        return float(found[head_gemm(QWEN)].curve().at(sequences)) + moved

    def attention(phase: str, batch: float, length: float) -> float:
        surface = found[AttentionKernel(phase, 32, 8, 128, "bfloat16")].surface(phase)
        return 36 * float(surface.refined(np.array([batch]), np.array([length]))[0, 0])

    # 100 decodes are padded to 104 tokens; 700 tokens are not padded.
    host = 2.5e-3 + 5e-6 * 100
    decode = attention("decode", 100, 640)
    assert cost.seconds(0, 0.0, 100, 64_000, 0) == pytest.approx(body(104) + head(100) + decode + host, rel=2e-3)
    # Three prompts of 200 tokens each.
    prefill = attention("prefill", 3, 200)
    alone = body(600) + head(3) + prefill + 2.5e-3
    assert cost.seconds(600, 3 * 200**2 / 2, 0, 0, 0) == pytest.approx(alone, rel=2e-3)
    # A chunk of 512 tokens behind 1,536 others: attention as of one prompt of √2W.
    work = 512 * (1536 + 256)
    chunk = attention("prefill", 1, sqrt(2 * work))
    assert cost.seconds(512, work, 0, 0, 0) == pytest.approx(body(512) + head(1) + chunk + 2.5e-3, rel=2e-3)
    # Mixed: body and head once, the decode part by the law.
    rate = attention("prefill", 1, 4096) / (4096**2 / 2)
    both = {
        "fa2": max(64 * 64_000 * rate, decode),  # x is 0.33 on the L40S: no head reads for itself
        "fa3": max(128 * 64_000 * rate / 4, decode),
        "b300": decode,
    }[GPUS[gpu]]
    mixed = body(700) + head(103) + prefill + both + host
    assert cost.seconds(600, 3 * 200**2 / 2, 100, 64_000, 0) == pytest.approx(mixed, rel=2e-3)


def test_two_gpus_halve_the_matrices_and_add_two_all_reduces_a_layer() -> None:
    found = find_kernels("h200", QWEN, 2)
    assert Gemm("bfloat16", 3072, 4096).name in found.operations
    assert Gemm("bfloat16", 75968, 4096).name in found.operations
    one, two = kernels("h200"), kernels("h200", tp=2)
    assert one.body[8192] > two.body[8192] > one.body[8192] / 2
    reduce = find_kernels("h200", QWEN, 2).operations["all_reduce 2 eager"].curve()
    parts = sum(layers * float(found[gemm].curve().at(8192)) for gemm, layers in layer_gemms(QWEN.part(2)).items())
    moved = 8192 * 2 * (8 * 4096 + 3 * 6144 + 4 * (16 + 2 * 4) * 128) / (0.8 * 4.8e12)
    sums = 2 * 36 * float(reduce.at(8192 * 4096))
    assert two.body[8192] == pytest.approx(parts + 36 * (moved + 8e-6) + sums, rel=1e-6)


def test_gpus_share_the_head_and_each_samples_from_all_logits() -> None:
    gemm = find_kernels("h200", QWEN, 2)[Gemm("bfloat16", 75968, 4096)].curve()
    moved = 64 * 12 * 151_936 / (0.8 * 4.8e12)
    assert kernels("h200", tp=2).head[64] == pytest.approx(float(gemm.at(64)) + moved, rel=1e-6)


def test_the_hosts_time_is_what_was_given() -> None:
    slow = kernels("h200", host=Host(5e-3, 1e-4))
    assert slow.seconds(0, 0.0, 10, 1000, 0) - kernels("h200").seconds(0, 0.0, 10, 1000, 0) == pytest.approx(3.45e-3)
    assert slow.parameters() == {"host_s": 5e-3, "decode_s": 1e-4}


def test_what_leaves_the_tables_is_counted() -> None:
    cost = kernels("h200")
    cost.seconds(600, 60_000.0, 100, 64_000, 0)
    assert not cost.off_grid.steps
    long = cost.seconds(4096, 4096 * 100_000.0, 0, 0, 0)
    cost.seconds(600, 60_000.0, 100, 600_000, 0)
    cost.seconds(600, 60_000.0, 3000, 300_000, 0)
    assert cost.off_grid.steps == {"prompt length": 1, "decode context": 1, "decodes": 1}
    assert cost.off_grid.seconds["prompt length"] == long
    cost.see_decodes(np.array([10.0, 3000.0, 10.0]), np.array([1e3, 9e6, 600_000.0]), np.array([1.0, 2.0, 4.0]))
    assert cost.off_grid.steps == {"prompt length": 1, "decode context": 2, "decodes": 2}
    assert cost.off_grid.seconds["decodes"] == pytest.approx(2.0, abs=0.5)


@pytest.mark.parametrize("gpu", SYSTEMS)
def test_every_gpu_prices_qwen3_8b_without_the_package(gpu: str) -> None:
    cost = load_pair(gpu, "Qwen3-8B").cost("kernels")
    assert isinstance(cost, Kernels)
    steps = [cost.seconds(0, 0.0, n, 500 * n, 0) for n in (1, 16, 64, 256, 1024)]
    assert steps == sorted(steps)
    assert 2.5e-3 < steps[0] < 0.03
    # A step of the prompts of all but their first time does not cost less than nothing either.
    assert cost.seconds(2048, 2048 * 150.0, 0, 0, 0) > steps[0]
    status = {"fa2": "law, unmeasured", "fa3": "law, unmeasured", "b300": "assumed"}
    expected = "law, checked" if gpu == "rtxpro6000" else status[str(load_pair(gpu, "Qwen3-8B").gpu.attention)]
    assert cost.about["mixed_call"] == expected


def test_embedded_tables_are_the_packages_to_the_bit() -> None:
    data = installed()
    if data is None:
        pytest.skip("aiconfigurator-core is not installed: the tables that come with the project were not compared")
    for gpu, system in SYSTEMS.items():
        own = embedded(gpu)
        for model in all_model_names():
            shape = find_model(model)[1]
            assert shape is not None
            for operation in operations_of(shape, 1):
                if operation.name in own:
                    told = from_package(data, system, operation)
                    assert (told.seconds == own[operation.name].seconds).all()
                    assert told.note == own[operation.name].note


def test_a_file_of_measured_kernels_is_read_as_it_was_written(tmp_path: Path) -> None:
    curve = Measured(np.array([1.0, 2.0]), None, as_stored(np.array([0.1, 0.3])), "one")
    surface = Measured(np.array([1.0, 1.0]), np.array([2.0, 4.0]), as_stored(np.array([0.1, 0.7])), "two")
    write_measured(tmp_path / "t.parquet", {"b": surface, "a": curve}, {"source": "here"})
    found = read_measured(tmp_path / "t.parquet")
    assert sorted(found) == ["a", "b"]
    for name, one in (("a", curve), ("b", surface)):
        assert found[name].seconds.tolist() == one.seconds.tolist()
        assert found[name].note == one.note
    assert found["a"].y is None


def test_what_the_tables_lack_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.profiles.kernels.build.installed", lambda: None)
    with pytest.raises(NoSuchTimesError, match="no measured kernels of this GPU"):
        find_kernels("gtx1080", QWEN, 1)
    with pytest.raises(
        NoSuchTimesError, match=r"lack its gemm bfloat16 10368x5056: `pip install 'schedbench\[kernels\]'"
    ):
        find_kernels("h200", Shape(10, 5056, 79, 1, 128, 1024, 32000), 1)


def test_another_version_of_the_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spec:
        submodule_search_locations = ("somewhere",)

    monkeypatch.setattr("importlib.util.find_spec", lambda _: Spec())
    monkeypatch.setattr("importlib.metadata.version", lambda _: "9.9")
    with pytest.raises(Exception, match=r"^aiconfigurator-core 9\.9 is installed and 0\.12\.0 is what .*==0\.12\.0$"):
        installed()


def test_runs_share_what_was_computed_and_not_what_was_counted() -> None:
    pair = load_pair("h200", "Qwen3-8B")
    first, second = (pair.cost("kernels") for _ in range(2))
    assert isinstance(first, Kernels)
    assert isinstance(second, Kernels)
    assert first == second
    first.see_decodes(np.array([5000.0]), np.array([5e6]), np.array([0.1]))
    assert first.off_grid.steps
    assert not second.off_grid.steps
    assert first.seconds(0, 0.0, 64, 64_000, 0) == second.seconds(0, 0.0, 64, 64_000, 0)
    assert first._rows is second._rows
