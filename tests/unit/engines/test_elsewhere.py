"""What share of the machine other work took, from the kernel's own counts."""

from __future__ import annotations

import os
from pathlib import Path

from harness.engines.serving.other_load import OtherLoad


def kernel(proc: Path, cpu: str, processes: dict[int, tuple[str, int, int, int]]) -> None:
    """`cpu` is the first line of stat; a process has a name, its parent, its group and its ticks."""
    proc.mkdir(exist_ok=True)
    (proc / "stat").write_text(f"cpu  {cpu} 0 0\ncpu0 1 2 3\n")
    for pid, (name, parent, group, ticks) in processes.items():
        (proc / str(pid)).mkdir(exist_ok=True)
        rest = " ".join(["0"] * 8)
        (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {group} {rest} {ticks} 0 0 0 20 0\n")


def test_the_tree_and_the_group_are_the_runs_own_and_the_rest_is_elsewhere(tmp_path: Path) -> None:
    me, proc = os.getpid(), tmp_path / "proc"
    first = {
        me: ("bench", 1, me, 100),
        900001: ("a ) b (", me, 900001, 10),
        900002: ("core", 1, 900001, 50),
        900003: ("other", 1, 7, 500),
    }
    kernel(proc, "1000 0 0 9000 0 0 0 0", first)
    other_load = OtherLoad(900001, proc)
    later = {pid: (name, parent, group, ticks + 30) for pid, (name, parent, group, ticks) in first.items()}
    # 400 ticks passed: 120 busy, 10 stolen, of which the run's own three processes had 90.
    kernel(proc, "1110 0 0 9280 0 0 0 10", later)
    assert other_load.share() == (110 + 10 - 90) / 400


def test_what_the_kernel_does_not_tell_is_unknown(tmp_path: Path) -> None:
    assert OtherLoad(1, tmp_path / "nothing").share() is None


def test_this_machine_tells() -> None:
    other_load = OtherLoad(os.getpgid(0))
    sum(i * i for i in range(3_000_000))
    share = other_load.share()
    assert share is None or 0 <= share <= 1
