"""Published runs in S3, on moto's server: sent, read, compared, shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Bench
from tests.support.runfactory import write_toy

URL = "s3://bench/results"
MAKE_BUCKET = "import fsspec; fsspec.filesystem('s3').mkdir('bench')"


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """An S3 of this test's own, as the environment names it."""
    command = [sys.executable, "-m", "moto.server", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        address = next(found[0] for line in server.stderr if (found := re.search(r"http://[\d.:]+", line)))
        environment = {"AWS_ENDPOINT_URL": address, "AWS_DEFAULT_REGION": "us-east-1"}
        environment |= {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
        subprocess.run([sys.executable, "-c", MAKE_BUCKET], env=os.environ | environment, check=True)
        yield environment
        server.terminate()


def test_runs_are_published_to_s3_and_read_from_there(
    bench: Bench, tmp_path: Path, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    for policy in ("v1", "v0"):
        write_toy(tmp_path / "runs", policy=policy, n=60)
    published = bench("publish", "runs", "--results", URL)
    assert published.code == 0, published.err
    places = re.findall(rf"^{URL}/(\S+): places masked: ", published.out, re.M)
    assert len(places) == 2
    compared = bench("compare", URL, "--json")
    assert compared.code == 0, compared.err
    here = bench("compare", "runs", "--json")
    assert compared.json["metrics"] == here.json["metrics"]
    built = bench("site", "build", "--results", URL, "--out", "public")
    assert built.code == 0, built.err
    assert "public/index.html: 2 runs" in built.out


def test_what_cannot_be_read_there_is_a_line(bench: Bench, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    missing = bench("list", "s3://no-such-bucket/x")
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.startswith("bench: s3://no-such-bucket/x: no whole run there ")
    assert missing.err.count("\n") == 1


def test_a_url_is_no_place_for_a_run_that_is_made(bench: Bench, tmp_path: Path) -> None:
    refused = bench("run", "--gpu", "l40s", "--policy", "v1", "--workload", "lmsys", "--out", URL)
    assert refused.code == 2
    assert refused.err == (
        f"bench: {URL}: a URL, and a place on this machine is meant: `bench publish RUN --results URL` sends runs to a "
        "store\n"
    )
    assert not list(tmp_path.iterdir())
