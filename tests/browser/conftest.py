"""One Chromium for all browser tests, and the sites that they look at: a full one, an empty one, one of one run."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from harness.core.runspec import RunSpec
from harness.pages.build import build
from harness.runs.run import run_path
from harness.runs.writer import recover
from tests.support.browsed import HOSTILE, Opener
from tests.support.commands import BENCH
from tests.support.runfactory import SPEC, toy_run, write_run, write_toy

RUN = ("run", "--alone", "--repeat", "2", "--requests", "200", "--concurrency", "64", "--slots", "32", "--workload")
LENGTHS = "synthetic:mu_l=128,mu_o=48,jitter=0.5"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if found is None:
        why = (
            "no Chromium: `make browser` installs Debian's (apt-get install chromium-headless-shell fonts-dejavu-core)"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every kind of page: repeats, an SLO, drift, a path of α, INVALID, hostile names, a reported figure."""
    root = tmp_path_factory.mktemp("published") / "results"
    cache = {"BENCH_CACHE": str(root.parent / "cache"), "HF_HUB_OFFLINE": "1"}
    for more in (
        (LENGTHS, "--gpu", "l40s", "--policy", "v1,v0,ebplus", "--slo", "ttft_s=1"),
        (LENGTHS, "--gpu", "h100-sxm", "--policy", "v1,ljf,isjl:alpha=10,isjl:alpha=40", "--lengths", "oracle"),
    ):
        command = [BENCH, *RUN, *more, "--out", str(root)]
        done = subprocess.run(command, env=os.environ | cache, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for pattern in sorted(root.glob("l40s/*/*/*/*-r0")):
        drifting(pattern, root)
    requests, steps = toy_run()
    for policy in ("v1", HOSTILE):
        # Of a server that runs already the policy is the user's own word.
        spec = dataclasses.replace(SPEC, engine="endpoint", policy=policy, gpu=HOSTILE, workload=HOSTILE, model=HOSTILE)
        write_run(root, requests, steps, spec=spec, provenance={"engine": HOSTILE, "trace": {"kind": HOSTILE}})
    write_run(root, requests, steps, spec=dataclasses.replace(SPEC, policy="v1"))
    write_run(root, requests, steps, spec=dataclasses.replace(SPEC, policy="eb"), status="interrupted", reason=HOSTILE)
    reported(root / "published/h100-sxm/qwen-qwen3-8b/sharegpt/v1/table-4")
    broken = root / "broken" / HOSTILE.replace("/", "-")
    broken.mkdir(parents=True)
    (broken / "run.json").write_text("{")
    (root / "elsewhere").symlink_to(root.parent)
    return root


def drifting(pattern: Path, root: Path) -> None:
    """The run once more, as one whose traffic changed half-way."""
    manifest = json.loads((pattern / "run.json").read_text())
    spec = RunSpec.from_dict(manifest["spec"] | {"workload": "drift:lengths"})
    phases = [{"name": HOSTILE, "first_row": 0}, {"name": "long", "first_row": 100}]
    manifest |= {"spec": spec.to_dict(), "digest": spec.digest}
    manifest["provenance"]["trace"] |= {"phases": phases}
    path = run_path(root, spec, datetime.fromisoformat(manifest["started_utc"]))
    shutil.copytree(pattern, path)
    (path / "run.json").write_text(json.dumps(manifest))
    # What changes on the way has no intervals from within: the summary is made again.
    recover(path)


def reported(path: Path) -> None:
    """A published figure: no tables, no verdict, no times."""
    spec = dataclasses.replace(SPEC, policy="v1", gpu="h100-sxm", workload="sharegpt")
    manifest = {"schema": 1, "spec": spec.to_dict(), "digest": spec.digest, "kind": "reported", "status": "complete"}
    manifest["provenance"] = {"source": HOSTILE}
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(manifest))
    metrics = {"output_throughput": {"value": 1234.5, "unit": "tok/s"}, "tpot_s": {"mean": 0.05, "unit": "s"}}
    (path / "summary.json").write_text(json.dumps({"schema": 1, "metrics": metrics}))


@pytest.fixture(scope="session")
def site(results: Path) -> Path:
    """The site of all of them."""
    built = build(results, results.with_name("site"))
    assert built.problems == 2
    return results.with_name("site")


@pytest.fixture
def open_page(browser: Browser, site: Path) -> Iterator[Opener]:
    """Opens pages of the full site from its files."""
    yield Opener(browser, site.as_uri())
    for context in browser.contexts:
        context.close()


@pytest.fixture(scope="session")
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("empty")
    (root / "results").mkdir()
    build(root / "results", root / "site")
    return root / "site"


@pytest.fixture(scope="session")
def single_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("single")
    write_toy(root / "results", policy="v1")
    build(root / "results", root / "site")
    return root / "site"
