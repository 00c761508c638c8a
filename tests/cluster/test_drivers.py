"""Load from the nodes of a Ray cluster, one of them in a time namespace of its own: its clock is really another.

`make soak` runs it; `make test` does not, since Ray takes long to start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import serve
from tests.support.commands import BENCH, Bench, Serve, bench_in
from tests.support.partial_runs import wait_for_completed, wait_until

pytest.importorskip("ray", reason="pip install 'schedbench[ray]'")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

__all__ = ("serve",)

AHEAD_S = 1000
ELSEWHEN = ["unshare", "--fork", "--kill-child", "--time", "--monotonic", str(AHEAD_S)]
OPEN_LOOP = (
    "run",
    "--workload",
    "synthetic:mu_l=20,mu_o=8",
    "--requests",
    "200",
    "--rate",
    "100",
    "--api",
    "completions",
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that drives nothing, a node by its clock, and a node 1000 s ahead where the system lets us."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 80 * 2**20})
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def far_node(cluster: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A node whose monotonic clock is ahead by AHEAD_S, with its process."""
    if subprocess.run([*ELSEWHEN, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespace may be made here (unshare --time needs root)")
    ray = str(Path(sys.executable).with_name("ray"))
    command = [
        ray,
        "start",
        f"--address={cluster.address}",
        "--num-cpus=2",
        "--object-store-memory=80000000",
        "--block",
    ]
    with subprocess.Popen([*ELSEWHEN, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        import ray as ray_here

        ray_here.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            wait_until(lambda: len([node for node in ray_here.nodes() if node["Alive"]]) >= 2, process)
        finally:
            ray_here.shutdown()
        yield process
        # unshare heeds no other signal.
        process.kill()


def test_one_schedule_from_two_hosts_of_two_clocks(
    cluster: Any, far_node: subprocess.Popen[bytes], bench: Bench, serve: Serve, tmp_path: Path
) -> None:
    url, _ = serve()
    result = bench(*OPEN_LOOP, "--url", url, "--drivers", "2", "--address", cluster.address, "--json")
    assert result.code == 0, result.err
    (run,) = result.json["runs"]
    assert run["counts"]["completed"] == 200
    manifest = json.loads((tmp_path / run["dir"] / "run.json").read_text())
    client = manifest["client"]
    assert client["processes"] == 2
    assert sorted(host["sent"] for host in client["hosts"]) == [100, 100]
    near, far = sorted(client["hosts"], key=lambda host: host["offset_s"])
    assert (near["same_clock"], near["offset_s"], near["error_s"]) == (True, 0.0, 0.0)
    assert not far["same_clock"]
    for offset in ("offset_s", "offset_after_s"):
        assert abs(far[offset] - AHEAD_S) <= far["error_s"], "the true offset is known here"
    assert client["clock_error_s"] == far["error_s"]
    checks = {check["name"]: check for check in manifest["verdict"]["checks"]}
    assert checks["driver_clocks"]["value"] == client["clock_error_s"]
    rows = pq.read_table(tmp_path / run["dir"] / "requests.parquet").to_pylist()
    assert sorted(row["row"] for row in rows) == list(range(200))
    # Of the whole schedule each host sent its own part when it was due: by the wrong clock it would be off by minutes.
    assert all(0 <= row["sent_s"] - row["due_s"] < 5 for row in rows)


def test_more_hosts_than_there_are_is_a_line(cluster: Any, bench: Bench, serve: Serve) -> None:
    url, _ = serve()
    result = bench(*OPEN_LOOP, "--url", url, "--drivers", "9", "--address", cluster.address)
    assert result.code == 2
    assert "--drivers 9: the Ray cluster at" in result.err.splitlines()[-1]


def test_more_processes_than_a_host_has_processors_is_a_line(cluster: Any, bench: Bench, serve: Serve) -> None:
    url, _ = serve()
    result = bench(*OPEN_LOOP, "--url", url, "--drivers", "1", "--processes", "9", "--address", cluster.address)
    assert result.code == 2
    assert "has 2 processors, and each driving process takes one" in result.err.splitlines()[-1]


def test_a_host_that_is_lost_ends_the_run_which_keeps_what_was_recorded(
    cluster: Any, far_node: subprocess.Popen[bytes], serve: Serve, tmp_path: Path
) -> None:
    """The last one: the node is gone after it."""
    url, _ = serve()
    command = [BENCH, *OPEN_LOOP, "--requests", "5000", "--url", url, "--drivers", "2", "--address", cluster.address]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        wait_for_completed(process, tmp_path)
        far_node.kill()
        _, err = process.communicate()
    assert process.returncode == 3, err
    assert "a driving process died; what it had recorded is kept" in err
    (manifest,) = (json.loads(path.read_text()) for path in tmp_path.rglob("run.json"))
    assert manifest["status"] == "failed"
    assert 0 < manifest["counts"]["completed"] < 5000
    assert len(manifest["client"]["hosts"]) == 2
