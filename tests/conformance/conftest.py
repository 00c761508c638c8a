import os
from collections.abc import Iterator

import pytest

from tests.support.emulated_engine import EmulatedEngine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedEngine]:
    """vLLM's scheduler in the environment that BENCH_ENGINE_PYTHON names."""
    python = os.environ.get("BENCH_ENGINE_PYTHON")
    if not python:
        why = "BENCH_ENGINE_PYTHON names no Python with vLLM: nothing was compared with vLLM's scheduler"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(why)
        pytest.skip(why)
    engine = EmulatedEngine(python, tmp_path_factory.mktemp("emulated"))
    yield engine
    engine.close()
