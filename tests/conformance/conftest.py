from collections.abc import Iterator

import pytest

from tests.support.emulated_engine import EmulatedEngine
from tests.support.real_vllm import engine_python_or_skip


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The engine's Python."""
    return engine_python_or_skip()


@pytest.fixture(scope="session")
def engine(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedEngine]:
    """vLLM's scheduler in the environment that BENCH_ENGINE_PYTHON names."""
    engine = EmulatedEngine(engine_python, tmp_path_factory.mktemp("emulated"))
    yield engine
    engine.close()
