from pathlib import Path

import pytest

from tests.support.runfactory import write_toy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run under results/ in the place that its spec gives it."""
    return write_toy(tmp_path / "results", policy="v1", n=60)
