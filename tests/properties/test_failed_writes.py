"""Whichever write fails of a run, a publication, a cache or a site: one line, nothing lost, and the next try is whole.

BENCH_FAILED_WRITES tries more of them (`make soak`: all).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

SOURCE = ROOT / "tests" / "support" / "failing_writes.c"


@pytest.mark.skipif(sys.platform != "linux", reason="the library is preloaded as Linux does it")
def test_any_write_may_fail(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make a library with")
    library = tmp_path / "failing_writes.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.nth_write", tmp_path],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tried = json.loads(done.stdout)
    for name, (writes, failed) in tried.items():
        assert writes > 5, name
        # The cache alone never fails: it keeps what it could not write in memory.
        assert (failed > 0) is (name != "try_cache"), name
