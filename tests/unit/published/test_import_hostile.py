"""Files of other tools that were cut, edited or made to do harm: one line each, and nothing written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.errors import UserError
from harness.published.imports import FORMATS, Labels, import_runs, read_foreign
from harness.runs.run import load_run

DATA = Path(__file__).resolve().parents[2] / "data" / "exchange"
FILES = sorted(path.name for path in DATA.iterdir())


def document(name: str) -> Any:
    text = (DATA / name).read_text()
    return yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_one_line(name: str, tmp_path: Path) -> None:
    text = (DATA / name).read_text()
    path = tmp_path / name
    for share in (0, 0.2, 0.5, 0.9):
        path.write_text(text[: int(len(text) * share)])
        # YAML may end anywhere: the report's version, by which it is known, stands last.
        with pytest.raises(UserError) as caught:
            read_foreign(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one.pop("total_output_tokens"), "total_output_tokens is missing"),
        (lambda one: one.update(mean_ttft_ms="fast"), "mean_ttft_ms is fast"),
        (lambda one: one.update(mean_ttft_ms=-1), "mean_ttft_ms is -1"),
        (lambda one: one.update(completed=1.5), "completed is 1.5"),
        (lambda one: one.update(completed=True), "completed is True"),
        (lambda one: one.update(mean_ttft_ms=one["mean_ttft_ms"] / 2), "its list of requests gives"),
        (lambda one: one.update(total_output_tokens=999), "total_output_tokens is 999"),
        (lambda one: one.update(ttfts=one["ttfts"][:3]), "its lists hold"),
        (lambda one: one.update(ttfts=[None] * 6), "no number"),
        (lambda one: one.update(output_throughput=1e300), "output_throughput is 1e+300"),
    ],
)
def test_what_contradicts_itself_is_named(change: Callable[[Any], object], told: str, tmp_path: Path) -> None:
    one = document("vllm-bench-0.32.json")
    change(one)
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(one))
    with pytest.raises(UserError) as caught:
        read_foreign(path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\nb\x1b[31m", "m" * 5000, "名前", " ", "\u202egnp.exe"])
def test_hostile_names_stay_names(name: str, tmp_path: Path) -> None:
    one = document("vllm-bench-0.32.json") | {"model_id": name}
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(one))
    (directory,) = import_runs(path, tmp_path / "out", Labels())
    assert (tmp_path / "out") in directory.parents
    assert len(directory.relative_to(tmp_path / "out").parts) == 5
    run = load_run(directory)
    assert run.spec.model.isprintable()
    assert len(run.spec.model) <= 200


def test_no_answer_at_all_is_no_run(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text(
        json.dumps(
            {"completed": 0, "failed": 9, "total_input_tokens": 0, "total_output_tokens": 0}
            | {"request_throughput": None}
        )
    )
    with pytest.raises(UserError, match="no request was completed"):
        import_runs(path, tmp_path, Labels())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no whole JSON"),
        (b"[" * 100_000, "no whole JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "no result that is known"),
        (b'{"runs": []}', "no result that is known"),
        (b'{"benchmarks": [], "metadata": {"guidellm_version": "1"}}', "no benchmark in it"),
        (b'{"version": "9.0", "scenario": {}, "metrics": {}}', "known are 0.1, 0.2"),
        (b'{"version": "0.1", "scenario": {}, "metrics": {"requests": {"total": 3}}}', "no figure in it"),
    ],
)
def test_what_is_no_result_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_foreign(path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_that_is_none_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.yaml"
    path.write_text("a: [1\nb: }")
    with pytest.raises(UserError, match="no whole YAML in line 2"):
        read_foreign(path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for other in (pipe, tmp_path, tmp_path / "none.json"):
        with pytest.raises(UserError, match="cannot be read"):
            read_foreign(other)


def test_yaml_that_grows_without_end_is_no_result(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match="no result that is known"):
        read_foreign(path)
    path.write_text("[" * 400)
    with pytest.raises(UserError, match="no whole YAML"):
        read_foreign(path)


def test_a_result_may_stand_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "latest.json").symlink_to(DATA / "vllm-bench-0.32.json")
    assert read_foreign(tmp_path / "latest.json")[0].model == "mock"


def test_a_named_format_is_held_to_its_word(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a result of guidellm"):
        read_foreign(DATA / "aiperf-0.13.json", "guidellm")
    assert read_foreign(DATA / "aiperf-0.13.json", "aiperf")[0].tool == "aiperf"
    assert set(FORMATS) == {"vllm", "guidellm", "aiperf", "genai-perf", "inference-perf", "llm-d"}


def test_labels_are_lines(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--gpu"):
        import_runs(DATA / "aiperf-0.13.json", tmp_path, Labels(gpu="a\nb"))
