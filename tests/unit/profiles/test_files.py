"""Profile files of a user: what loads, and the one line that each fault gets."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.profiles.files import FOLDER, load_gpu
from harness.profiles.pair import load_pair

H200 = (FOLDER / "h200.toml").read_text(encoding="utf-8")
L40S = (FOLDER / "l40s.toml").read_text(encoding="utf-8")


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_users_profile_loads(tmp_path: Path) -> None:
    pair = load_pair(write(tmp_path, H200.replace('"published"', '"calibrated"')), "Qwen3-8B")
    assert pair.gpu.name == "mine"
    assert pair.basis == "calibrated"
    assert pair.cost().parameters() == load_pair("h200", "Qwen3-8B").cost("linear").parameters()
    assert pair.describe() == "mine / Qwen3-8B: calibrated step times (linear)"


def test_the_profile_may_say_the_kv_capacity(tmp_path: Path) -> None:
    text = L40S + '[pairs."Qwen/Qwen3-8B"]\nkv_tokens = { value = 100_007, source = "the log of my server" }\n'
    pair = load_pair(write(tmp_path, text), "Qwen3-8B")
    assert pair.kv_tokens == 100_000
    assert pair.basis == "derived"
    assert pair.to_manifest()["kv_source"] == "profile"


def test_without_a_peak_and_without_a_fit_there_is_no_roofline(tmp_path: Path) -> None:
    peak = next(line for line in L40S.splitlines() if line.startswith("dense_bf16"))
    pair = load_pair(write(tmp_path, L40S.replace(peak, 'dense_bf16_tflops = { none = "unknown" }')), "Qwen3-8B")
    with pytest.raises(UserError, match="no dense bf16 peak"):
        pair.cost()


def test_a_fitted_alpha_mb_is_taken(tmp_path: Path) -> None:
    text = H200.replace("a_s_per_token = 2.493675e-05", "alpha_mb_s = 0.004\na_s_per_token = 2.493675e-05")
    assert load_pair(write(tmp_path, text), "Qwen3-8B").policy_constants(1, 1, 32, "linear").alpha_mb_s == 0.004


MEMORY = 'memory_gb = { value = 141, source = "NVIDIA H200 datasheet, SXM: 141 GB HBM3e" }'
FAULTS = {
    "missing figure": (MEMORY, "", r"memory_gb is missing: add `memory_gb = \{ value = …, source"),
    "no source": (MEMORY, "memory_gb = { value = 141 }", r"memory_gb\.source is missing: add `source"),
    "empty source": (MEMORY, 'memory_gb = { value = 141, source = " " }', r"memory_gb\.source is empty"),
    "naked number": (MEMORY, "memory_gb = 141", r"memory_gb has no value with a source: write `memory_gb"),
    "wrong type": (
        MEMORY,
        'memory_gb = { value = "141", source = "x" }',
        r"memory_gb\.value is '141': write a number",
    ),
    "not finite": (MEMORY, 'memory_gb = { value = inf, source = "x" }', r"memory_gb\.value is inf: write a finite"),
    "true is no number": (MEMORY, 'memory_gb = { value = true, source = "x" }', "is True: write a number"),
    "not positive": (MEMORY, 'memory_gb = { value = 0, source = "x" }', "memory_gb is 0.0: it must be above 0"),
    "mistyped key": (MEMORY, MEMORY + "\nmemory_gib = 3", r"memory_gib is no key of a profile; did you mean memory_gb"),
    "generation": ('value = "fa3"', 'value = "fa9"', r"attention is 'fa9': use one of fa2, fa3, b300"),
    "not TOML": (MEMORY, "memory_gb = ", "not a TOML file"),
    "alpha_d": (
        "alpha_d_s = 0.008921181622454422",
        "alpha_d_s = 0.0",
        r"Qwen/Qwen3-8B\.steps\.alpha_d_s is 0: α_d = 0 would make θ0 = 1: recalibrate",
    ),
    "slope": (
        "beta_p_s_per_token = 2.4852551825304505e-05",
        "beta_p_s_per_token = -1e-5",
        r"beta_p_s_per_token is -1e-05: it must be above 0: recalibrate",
    ),
    "alpha_p": ("alpha_p_s = 0.0012785933415095027", "alpha_p_s = -1e-3", r"alpha_p_s is -0\.001: it must not be neg"),
    "missing slope": ("beta_d_s_per_request = 4.586467522217373e-05\n", "", r"beta_d_s_per_request is missing: add"),
    "mixed": ("c_s_per_token = 1.477785e-05", "c_s_per_token = -1e-4", r"β_MB\(r\) must be above 0 for r in"),
    "mixed vertex": (
        "b_s_per_token = 5.192856e-05\nc_s_per_token = 1.477785e-05",
        "b_s_per_token = -2e-4\nc_s_per_token = 2e-4",
        r"β_MB\(r\) must be above 0",
    ),
    "basis": ('basis = "published"', 'basis = "guessed"', r"basis is 'guessed': use published or calibrated"),
    "form": ('form = "fitted"', 'form = "cubic"', r"form is 'cubic': use fitted or additive"),
    "flags": ("flags = []", "flags = [3]", r"flags is \[3\]: write a list of strings"),
    "pairs": ('[pairs."Qwen/Qwen3-8B".mixed]', '[pairs."Qwen/Qwen3-8B".mixd]', r"mixed is missing: add the table"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gets_one_line_with_file_key_and_remedy(fault: str, tmp_path: Path) -> None:
    good, bad, message = FAULTS[fault]
    assert good in H200
    path = write(tmp_path, H200.replace(good, bad, 1))
    with pytest.raises(UserError, match=message) as error:
        load_gpu(path)
    assert str(error.value).startswith(path)
    assert "\n" not in str(error.value)


def test_an_inferred_peak_needs_a_dense_fit_in_the_file(tmp_path: Path) -> None:
    text = (FOLDER / "b300.toml").read_text(encoding="utf-8")
    for model in ("Qwen/Qwen3-30B-A3B", "nobody/Nothing"):
        path = write(tmp_path, text.replace('inferred_from = "Qwen/Qwen3-8B"', f'inferred_from = "{model}"'))
        with pytest.raises(UserError):
            load_gpu(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such profile file"):
        load_gpu(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        load_gpu(str(tmp_path / "folder.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not a TOML file"):
        load_gpu(str(tmp_path / "bytes.toml"))


ABSURD = (
    "1e308",
    "1e-308",
    "5e-324",
    "nan",
    "inf",
    "-1",
    "9" * 4000,
    "9" * 5000,
    "0x" + "f" * 6000,
    "[" * 5000 + "]" * 5000,
    '"\\u001b[31m\\n"',
    "[1, 2]",
)


@pytest.mark.parametrize("value", ABSURD, ids=range(len(ABSURD)))
@pytest.mark.parametrize("text", [L40S, H200], ids=["l40s", "h200"])
def test_no_figure_is_too_absurd_for_one_line(tmp_path: Path, text: str, value: str) -> None:
    figures = [
        *re.finditer(r"value = ([^,]+),", text),
        *re.finditer(r"^\w+_s(?:_per_\w+)? = (\S+)$", text, re.MULTILINE),
    ]
    assert len(figures) >= 5
    for figure in figures:
        start, end = figure.span(1)
        path = write(tmp_path, text[:start] + value + text[end:])
        # A small value may be right where zero is: then it must reckon without a warning.
        told = ""
        try:
            pair = load_pair(path, "Qwen3-8B")
            pair.policy_constants(500, 300, 14336)
            assert all(len(note) < 250 for note in pair.policy_notes())
        except UserError as error:
            told = str(error)
        assert not told or told.isprintable()
        assert len(told) < 400 + len(path)


@pytest.mark.parametrize(
    ("figure", "low", "high"),
    [("memory_gb", 25, 1e5), ("bandwidth_tb_s", 1e-3, 1e4), ("dense_bf16_tflops", 1, 1e6)],
)
def test_figures_at_their_bounds_reckon_without_a_warning(tmp_path: Path, figure: str, low: float, high: float) -> None:
    (line,) = (line for line in L40S.splitlines() if line.startswith(figure))
    pairs = []
    for value in (low, high):
        changed = re.sub(r"value = [^,]+", f"value = {value:g}", line)
        pairs.append(load_pair(write(tmp_path, L40S.replace(line, changed)), "Qwen3-8B"))
        assert all(note.isprintable() and len(note) < 250 for note in pairs[-1].policy_notes())
    poor, rich = (pair.policy_constants(500, 300, 14336) for pair in pairs)
    for costs in (poor, rich):
        assert all(math.isfinite(seconds) and seconds >= 0 for seconds in dataclasses.astuple(costs))
    # Memory decides what fits, bandwidth what a step costs at least, arithmetic what a token of a prompt costs.
    matters = {
        "memory_gb": pairs[0].kv_tokens < pairs[1].kv_tokens,
        "bandwidth_tb_s": poor.alpha_d_s > rich.alpha_d_s,
        "dense_bf16_tflops": poor.beta_p_s > rich.beta_p_s,
    }
    assert matters[figure]


def test_texts_and_keys_stay_on_their_line(tmp_path: Path) -> None:
    for bad in (
        'label = "\\u001b[31m"',
        'label = "a\\nb"',
        f'label = "{"x" * 2000}"',
        '"a\\nb" = 1',
        f"{'x' * 9999} = 1",
    ):
        text = L40S.replace('label = "NVIDIA L40S"', bad)
        with pytest.raises(UserError) as caught:
            load_gpu(write(tmp_path, text))
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 600


def test_a_profile_that_is_no_file_of_a_profiles_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    for name in ("pipe.toml", "large.toml", "x" * 5000 + ".toml", "a\0.toml"):
        with pytest.raises(UserError, match=r"cannot be read|not a TOML file") as caught:
            load_gpu(str(tmp_path / name))
        assert str(caught.value).isprintable()
