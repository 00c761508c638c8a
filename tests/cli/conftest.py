from pathlib import Path

import pytest

from tests.support.commands import Bench, bench_in


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)
