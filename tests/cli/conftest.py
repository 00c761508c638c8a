from pathlib import Path

import pytest

from tests.support.commands import Bench, bench_in
from tests.support.models import write_bytes_tokenizer


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


@pytest.fixture
def bytes_tokenizer(tmp_path: Path) -> Path:
    """A tokenizer that counts bytes."""
    return write_bytes_tokenizer(tmp_path / "tokenizer.json")
