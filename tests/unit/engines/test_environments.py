"""Engine environments without an engine: what is there, what is refused; GPUs by their names."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.engines.serving import environments
from harness.engines.serving.environments import Environment, engine_python, examine, home, install, installed, untested
from harness.engines.serving.gpus import Card, is_cpu, is_here
from harness.engines.serving.tiny_model import VOCABULARY, make_tiny_model
from harness.session.choose import Chosen, choose, real_engine
from harness.session.options import RunOptions


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))


def pretend(kind: str) -> Path:
    """An environment as `install` leaves it, as far as its place and its mark go."""
    folder = home(kind)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "schedbench-engine.json").write_text(json.dumps({"kind": kind}))
    return folder / "bin" / "python"


def test_without_an_environment_the_line_says_how_to_make_one() -> None:
    assert installed() == {}
    for cpu, kind in ((True, "cpu"), (False, "cuda")):
        with pytest.raises(UserError, match=f"bench engine install {kind}"):
            engine_python(None, cpu)


def test_what_is_given_goes_before_what_is_installed() -> None:
    python = pretend("cpu")
    assert engine_python(None, True) == python
    assert engine_python("/other/python", True) == Path("/other/python")


@pytest.mark.parametrize(("python", "said"), [("/nowhere/python", "not a Python"), (sys.executable, "no vLLM in it")])
def test_a_python_without_vllm_is_refused(python: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        examine(Path(python))


def fake_vllm(directory: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the probe of a Python with that vLLM would say."""
    told = {
        "vllm": version,
        "torch": "2.13.0+cpu",
        "python": "3.11.7",
        "flags": ["watermark", "prefill_schedule_interval"],
    }
    monkeypatch.setattr(environments, "_probe", lambda _: told)
    return directory


@pytest.mark.parametrize(
    ("version", "interval", "note"), [("0.32.0", False, False), ("0.33.1", True, False), ("0.28.0+cpu", False, True)]
)
def test_a_version_decides_what_can_be_asked_for(
    version: str, interval: bool, note: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = examine(fake_vllm(tmp_path, version, monkeypatch))
    assert (found.version, found.kind) == (version, "cpu")
    assert ("prefill_schedule_interval" in found.flags) is interval
    assert "watermark" in found.flags
    assert (untested(found) is not None) is note


def test_an_old_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"0\.23\.1 is older than 0\.24"):
        examine(fake_vllm(tmp_path, "0.23.1", monkeypatch))


def test_an_installation_leaves_what_is_anothers_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="not empty"):
        install("cpu", tmp_path / "mine", lambda _: None)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


L40S = (Card("NVIDIA L40S", "570.1", "46068 MiB"),)


def test_what_is_imported_in_an_environment_is_compiled_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine.py").write_text("")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import engine"
    environments._run([sys.executable, "-c", code])
    assert list(tmp_path.rglob("engine.*.pyc"))


@pytest.mark.parametrize(
    ("gpu", "card", "here"),
    [
        ("l40s", "NVIDIA L40S", True),
        ("L40S", "NVIDIA L40S", True),
        ("l40", "NVIDIA L40S", False),
        ("a100", "NVIDIA A100-SXM4-80GB", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("h100", "NVIDIA H200", False),
        ("h200", "NVIDIA H200", True),
        ("h200", "NVIDIA GH200 480GB", False),
        ("rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("rtx3060", "NVIDIA GeForce RTX 3060", True),
    ],
)
def test_a_gpu_is_known_by_whole_words_of_its_name(gpu: str, card: str, here: bool) -> None:
    assert is_here(gpu, (Card(card, "1", "1"),)) is here
    assert not is_here(gpu, ())


def test_the_processor_is_called_cpu(tmp_path: Path) -> None:
    assert is_cpu("cpu")
    assert not is_cpu("l40s")
    assert not is_cpu("cpux")


def test_auto_says_why_it_takes_which_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def options(gpu: str) -> RunOptions:
        return RunOptions(gpus=(gpu,))

    monkeypatch.setattr("harness.engines.serving.gpus.cards", lambda: L40S)
    assert real_engine(options("h200")) == (False, "there is no h200 in this machine")
    assert choose(options("l40s")).engine == "simulated"
    assert "bench engine install cuda" in real_engine(options("l40s"))[1]
    python = pretend("cuda")
    assert choose(options("l40s")).engine == "vllm"
    assert real_engine(options("l40s")) == (True, f"l40s is here, and {python} has vLLM")
    assert choose(options("h200")).engine == "simulated"
    assert choose(replace(options("l40s"), engine="simulated")) == Chosen("simulated")


def test_a_tiny_model_is_made_once_and_writes_over_nothing(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    assert make_tiny_model(tmp_path / "tiny")
    assert not make_tiny_model(tmp_path / "tiny")
    assert Tokenizer.from_file(str(tmp_path / "tiny" / "tokenizer.json")).get_vocab_size() == VOCABULARY
    (tmp_path / "tiny" / "config.json").unlink()
    assert make_tiny_model(tmp_path / "tiny"), "one half made is finished"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(UserError, match="something else"):
        make_tiny_model(tmp_path / "other")
    assert (tmp_path / "other" / "config.json").read_text() == "{}"


def test_the_kinds_are_pinned() -> None:
    for kind in environments.KINDS.values():
        assert all("==" in package for package in kind.packages)
    assert Environment(Path("x"), "0.32.0+cpu", "cpu", frozenset(), {}).numbers == (0, 32)
