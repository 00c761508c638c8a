"""The files for clusters, as far as a machine without one can try them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import __version__
from harness.cli.main import bench as commands
from tests.support.places import ROOT

FILES = ROOT / "examples" / "cluster"
# Slurm's and Ray's own commands, as far as the script asks them; each writes down what it was given.
STUBS = {
    "scontrol": 'printf "one\\ntwo\\n"',
    "srun": 'while [[ "$1" == -* ]]; do [ "$1" = -w ] && shift; shift; done; exec "$@"',
    "hostname": "echo 10.0.0.1",
    "ray": 'echo "ray $*" >> log',
}
# Slurm tells the script that its time is over while the grid runs; the grid ends readably when it is told to.
STOPPED = f"""#!{sys.executable}
import os, signal, sys
def end(*_):
    open("log", "a").write("ended readably\\n")
    sys.exit(130)
signal.signal(signal.SIGTERM, end)
os.kill(os.getppid(), signal.SIGINT)
signal.pause()
"""


def run_slurm(folder: Path, bench: str) -> tuple[int, list[str]]:
    """The script's exit code with `bench` in the place of ours, and what was asked of the commands."""
    (folder / "bin").mkdir()
    for name, script in {
        **{name: f"#!/usr/bin/env bash\n{text}\n" for name, text in STUBS.items()},
        "bench": bench,
    }.items():
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_CPUS_PER_TASK": "16",
    }
    done = subprocess.run(
        ["bash", str(FILES / "slurm.sh"), "grid.toml", "runs"], cwd=folder, env=environment, check=False
    )
    return done.returncode, (folder / "log").read_text().splitlines()


@pytest.mark.parametrize("code", [0, 3])
def test_the_slurm_script_starts_ray_and_ends_as_the_grid_does(tmp_path: Path, code: int) -> None:
    # Both nodes start on their own, and the grid is not over before they have.
    nodes = "until [ $(grep -c 'ray start' log) = 2 ]; do :; done"
    ended, log = run_slurm(tmp_path, f'#!/usr/bin/env bash\n{nodes}\necho "bench $*" >> log\nexit {code}\n')
    assert ended == code
    assert "ray start --head --node-ip-address=10.0.0.1 --port=6379 --num-cpus=16 --block" in log
    assert "ray start --address=10.0.0.1:6379 --num-cpus=16 --block" in log
    assert "ray status --address 10.0.0.1:6379" in log
    (line,) = [line for line in log if line.startswith("bench ")]
    assert_is_a_command(shlex.split(line))


def test_when_slurm_says_that_the_time_is_over_the_grid_ends_readably(tmp_path: Path) -> None:
    ended, log = run_slurm(tmp_path, STOPPED)
    assert ended == 130
    assert "ended readably" in log


def test_the_kubernetes_file_asks_for_what_is_there() -> None:
    job = yaml.safe_load((FILES / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert_is_a_command(shlex.split(spec["entrypoint"]))
    cluster = spec["rayClusterSpec"]
    head, workers = cluster["headGroupSpec"]["template"]["spec"], cluster["workerGroupSpecs"]
    for pod in (head, *(group["template"]["spec"] for group in workers)):
        (container,) = pod["containers"]
        assert container["image"] == f"bench-ray:{__version__}"
        mounted = {one["name"] for one in container.get("volumeMounts", ())}
        assert mounted == {one["name"] for one in pod.get("volumes", ())}
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert requests == limits
    for group in workers:
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_the_spot_file_installs_this_version() -> None:
    spot = yaml.safe_load((FILES / "spot.yaml").read_text())
    installs = [line for line in lines_of(spot) if "schedbench" in line]
    assert installs == [f"pip install 'schedbench[ray]=={__version__}'"] * 2
    for line in lines_of(spot):
        if line.startswith("bench "):
            assert_is_a_command(shlex.split(line))


def lines_of(spot: dict[str, Any]) -> list[str]:
    return [line for name, lines in spot.items() if name.endswith("_commands") for line in lines]


def assert_is_a_command(words: list[str]) -> None:
    """Ours takes these words."""
    command: Any = commands
    rest = words[1:]
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context(command.name, rest)
