from pathlib import Path

import pytest

from tests.support.runfactory import write_toy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of a small run."""
    return write_toy(tmp_path / "runs", n=30)
