"""A grid on a local Ray cluster of three nodes, one of which is killed: every cell once, tables as on one machine.

`make soak` runs it; `make test` does not, since Ray takes long to start. BENCH_RAY_CELLS says how many cells.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import BENCH, Bench, bench_in
from tests.support.grids import assert_same_grids, runs_in
from tests.support.partial_runs import wait_until
from tests.support.places import ROOT

pytest.importorskip("ray", reason="pip install 'schedbench[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")

CELLS = int(os.environ.get("BENCH_RAY_CELLS", "200"))
GRID = f"""
engine = "simulated"
gpu = ["l40s", "h200"]
policy = ["v1", "ebplus"]
workload = ["lmsys", "synthetic:mu_l=64,mu_o=32"]
requests = 60
rate = [20, 40, 60, 80, 100]
slots = 16
repeat = {CELLS // 40}
alone = true
"""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Three nodes of two processors each on this machine; what runs there imports this checkout."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 * 2**20})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


@pytest.mark.timeout(1200)
def test_a_node_that_is_killed_loses_no_cell(cluster: Any, bench: Bench, tmp_path: Path) -> None:
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20) for _ in range(2)]
    cluster.wait_for_nodes()
    (tmp_path / "grid.toml").write_text(GRID)
    out = tmp_path / "there"
    command = [BENCH, "grid", "grid.toml", "--out", "there", "--address", cluster.address, "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(list(out.rglob("run.json"))) > CELLS // 4, process)
        status = bench("grid", "status", "--out", "there", "--json")
        assert status.json["state"] == "running"
        cluster.remove_node(nodes[0], allow_graceful=False)
        printed, err = process.communicate()
    assert process.returncode == 0, err + printed
    tally = json.loads(printed)
    assert (tally["cells"], tally["done"], tally["failed"]) == (CELLS, CELLS, 0)
    assert len(runs_in(out)) == CELLS
    assert bench("grid", "status", "--out", "there").code == 0
    local = bench("grid", "grid.toml", "--out", "here")
    assert local.code == 0, local.err
    assert_same_grids(tmp_path / "here", out)


@pytest.mark.timeout(300)
def test_a_node_with_another_bench_is_refused_by_name(cluster: Any, bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "harness").mkdir(parents=True)
    (tmp_path / "grid.toml").write_text(GRID)
    # The driver's bench is another than the nodes', which started before.
    environment = os.environ | {
        "COLUMNS": "200",
        "PYTHONPATH": f"{other}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    (other / "sitecustomize.py").write_text("import harness\nharness.__version__ = '0.0.9'\n")
    done = subprocess.run(
        [BENCH, "grid", "grid.toml", "--out", "there", "--address", cluster.address],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "has bench 0.2.0" in done.stderr
    assert "here is 0.0.9" in done.stderr
    assert not list((tmp_path / "there").rglob("run.json"))


def test_the_file_for_rays_launcher_has_its_form() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    spot = yaml.safe_load((ROOT / "examples" / "cluster" / "spot.yaml").read_text())
    validate_config(prepare_config(spot))
    with pytest.raises(Exception, match="'many' is not of type 'integer'"):
        validate_config(prepare_config(spot | {"max_workers": "many"}))


def test_no_cluster_is_a_line(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID)
    result = bench("grid", "grid.toml", "--address", "127.0.0.1:1")
    assert result.code == 2
    assert "no Ray cluster there" in result.err.splitlines()[-1]
