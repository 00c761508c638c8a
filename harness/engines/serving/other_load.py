"""How much of the machine's CPU time went to work that is none of the run's, which spoils what is timed."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
# Of /proc/stat's first line: user nice system idle iowait irq softirq steal; guests are within user.
_FIELDS, _IDLE = 8, (3, 4)


class OtherLoad:
    """Counts from its making on. The run's own are this process, all that descend from it, and one process group.

    Time that the hypervisor gave to other machines counts as other load too. `proc` is where the kernel tells.
    """

    def __init__(self, group: int, proc: Path = _PROC) -> None:
        self._group = group
        self._proc = proc
        self._start = self._counts()

    def share(self) -> float | None:
        """The share of all CPU time since then, 0 to 1; None where the kernel does not tell."""
        now = self._counts()
        if now is None or self._start is None:
            return None
        total, busy, own = (later - earlier for earlier, later in zip(self._start, now, strict=True))
        return min(max((busy - own) / total, 0.0), 1.0) if total > 0 else None

    def _counts(self) -> tuple[int, int, int] | None:
        """Ticks so far: of all CPUs, of these not idle, of these the run's own."""
        try:
            first_line = (self._proc / "stat").read_text().split("\n", 1)[0]
            ticks = [int(field) for field in first_line.split()[1 : _FIELDS + 1]]
            total = sum(ticks)
            return total, total - sum(ticks[i] for i in _IDLE), self._own()
        except (OSError, ValueError, IndexError):
            return None

    def _own(self) -> int:
        """Ticks of the run's own processes so far."""
        parents: dict[int, int] = {}
        groups: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for entry in os.scandir(self._proc):
            if not entry.name.isdigit():
                continue
            try:
                # The name in brackets may hold blanks and brackets: what follows the last of them is plain.
                fields = (self._proc / entry.name / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(entry.name)
            parents[pid], groups[pid] = int(fields[1]), int(fields[2])
            # Its own and its waited-for children's: user, system.
            ticks[pid] = sum(int(field) for field in fields[11:15])
        own = {os.getpid()} | {pid for pid, group in groups.items() if group == self._group}
        while children := {pid for pid, parent in parents.items() if parent in own} - own:
            own |= children
        return sum(ticks.get(pid, 0) for pid in own)
