from collections.abc import Iterator

import pytest

from policies.catalog import POLICIES
from tests.support.emulated_engine import EmulatedEngine
from tests.support.erratic_policy import add_to_catalog
from tests.support.real_vllm import engine_python_or_skip


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The engine's Python."""
    return engine_python_or_skip()


@pytest.fixture(scope="session")
def engine(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedEngine]:
    """vLLM's scheduler in the environment that BENCH_ENGINE_PYTHON names, with one policy more in the catalog.

    One process serves all tests: importing vLLM takes longer than most of them.
    """
    engine = EmulatedEngine(engine_python, tmp_path_factory.mktemp("emulated"), "tests.support.erratic_policy")
    yield engine
    engine.close()


@pytest.fixture
def erratic() -> Iterator[None]:
    """The policy `erratic` in the catalog of this process too."""
    add_to_catalog()
    yield
    del POLICIES["erratic"]
