"""A run that comes home: whole and once, or not at all."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.runs.schema import KIND_OF
from harness.session.grid_file import Point
from harness.session.grid_parcel import DamagedError, Parcel, pack, unpack
from harness.session.grid_plan import Cell, plan_grid
from harness.session.grid_ray import Home, RayExecutor, needs
from harness.session.grid_worker import Outcome, run_cell
from tests.support.grids import assert_same_grids


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cell, Parcel, Path]:
    out = tmp_path_factory.mktemp("node")
    values = {"gpu": "l40s", "workload": "lmsys", "requests": 20, "engine": "simulated", "alone": True}
    cell = plan_grid([Point(values, ("v1",))]).cells[0]
    return cell, pack(Path(run_cell(cell, out, lambda: False).path), out), out


def test_it_arrives_as_it_was_sent_and_a_second_time_changes_nothing(
    sent: tuple[Cell, Parcel, Path], tmp_path: Path
) -> None:
    cell, parcel, node = sent
    path = unpack(parcel, cell, tmp_path)
    assert path == tmp_path / parcel.place
    assert_same_grids(node, tmp_path)
    times = {file: file.stat().st_mtime_ns for file in path.iterdir()}
    assert unpack(parcel, cell, tmp_path) == path
    assert {file: file.stat().st_mtime_ns for file in path.iterdir()} == times
    assert not list((tmp_path / ".grid" / "arriving").iterdir())
    second = replace(cell, second=True)
    assert unpack(parcel, second, tmp_path / "runs") == tmp_path / "runs-aa" / parcel.place


def damaged(parcel: Parcel, name: str, data: bytes) -> Parcel:
    return replace(parcel, files={**parcel.files, name: data})


@pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet", "run.json", "summary.json"])
def test_a_file_that_changed_on_the_way_is_not_taken(
    sent: tuple[Cell, Parcel, Path], tmp_path: Path, name: str
) -> None:
    cell, parcel, _ = sent
    for data in (b"", parcel.files[name][:-1], parcel.files[name][:-1] + b"x"):
        with pytest.raises(DamagedError, match=f"{name} is not the file that was sent"):
            unpack(damaged(parcel, name, data), cell, tmp_path)
    missing = replace(parcel, files={key: data for key, data in parcel.files.items() if key != name})
    with pytest.raises(DamagedError, match=name):
        unpack(missing, cell, tmp_path)
    assert not (tmp_path / "l40s").exists()


def test_what_is_no_run_of_the_cell_is_not_taken(sent: tuple[Cell, Parcel, Path], tmp_path: Path) -> None:
    cell, parcel, _ = sent
    with pytest.raises(DamagedError, match="another spec"):
        unpack(parcel, replace(cell, digest="0" * 64), tmp_path)
    with pytest.raises(DamagedError, match="not below --out"):
        unpack(replace(parcel, place="../elsewhere"), cell, tmp_path)
    without = replace(parcel, sha256={name: one for name, one in parcel.sha256.items() if name != "requests.parquet"})
    with pytest.raises(DamagedError, match="requests"):
        unpack(without, cell, tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


class Receiving(RayExecutor):
    """The part that takes runs in, without a cluster."""

    def __init__(self, out: Path) -> None:
        self._out, self._vllm = out, {}

    def receive(self, cell: Cell, parcel: Parcel, node: str) -> Outcome:
        return self._received(cell, Home(Outcome(cell.key, "complete"), parcel, node), parcel)


def test_a_run_by_another_vllm_does_not_come_home(sent: tuple[Cell, Parcel, Path], tmp_path: Path) -> None:
    cell, parcel, _ = sent
    receiving = Receiving(tmp_path)

    def made_by(engine: str, version: str, seed: int) -> tuple[Cell, Parcel]:
        """The same run as an engine of that version would have made it."""
        spec = replace(cell.spec, engine=engine, seed=seed)
        told = json.loads(parcel.files["run.json"])
        told |= {"spec": spec.to_dict(), "digest": spec.digest, "kind": KIND_OF[engine]}
        told["provenance"] |= {"engine_version": version}
        files = {**parcel.files, "run.json": json.dumps(told).encode()}
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        return Cell(spec, cell.options, spec.digest), Parcel(f"{engine}/{seed}", files, digests)

    assert receiving.receive(*made_by("vllm", "0.11.0", 1), "10.0.0.1").status == "complete"
    assert receiving.receive(*made_by("vllm", "0.11.0", 2), "10.0.0.2").status == "complete"
    other = receiving.receive(*made_by("vllm", "0.10.2", 3), "10.0.0.3")
    assert other.status == "failed"
    assert other.reason == "node 10.0.0.3 has vllm 0.10.2, others vllm 0.11.0: install the same there"
    assert not (tmp_path / "vllm" / "3").exists()
    # What bench itself brings is held to be the same already.
    assert receiving.receive(*made_by("emulated", "0.10.2", 4), "10.0.0.3").status == "complete"
    for seed, version in enumerate("ab"):
        assert receiving.receive(*made_by("endpoint", version, seed), "10.0.0.1").status == "complete"


def test_a_run_that_arrives_damaged_runs_again_and_sets_no_version(
    sent: tuple[Cell, Parcel, Path], tmp_path: Path
) -> None:
    cell, parcel, _ = sent
    torn = damaged(parcel, "run.json", parcel.files["run.json"].replace(b"simulated", b"emulated", 1))
    receiving = Receiving(tmp_path)
    outcome = receiving.receive(replace(cell, spec=replace(cell.spec, engine="emulated")), torn, "10.0.0.1")
    assert (outcome.status, outcome.reason) == (
        "again",
        "its run came home damaged: run.json is not the file that was sent",
    )
    assert receiving._vllm == {}


def test_a_real_engine_asks_for_its_gpus_and_leaves_no_process(sent: tuple[Cell, Parcel, Path]) -> None:
    virtual = sent[0]
    assert needs(virtual)["num_cpus"] == 1
    assert "num_gpus" not in needs(virtual)
    assert "max_calls" not in needs(virtual)
    real = needs(replace(virtual, spec=replace(virtual.spec, engine="vllm", gpu="h200", tp=2)))
    assert (real["num_gpus"], real["accelerator_type"], real["max_calls"]) == (2, "H200", 1)
    more = replace(virtual, spec=replace(virtual.spec, requests=10**6))
    assert needs(more)["memory"] > needs(virtual)["memory"]
