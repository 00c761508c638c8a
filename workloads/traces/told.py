"""What a user tells of a trace file that the file does not tell itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.core.errors import WorkloadError
from workloads.core.reading import shown


@dataclass(frozen=True, slots=True)
class Told:
    """`unit` of its times (s, ms, us, ns; "": what its form has), `block`: tokens a hash id stands for (0: unknown)."""

    unit: str = ""
    block: int = 0

    def refuse(self, path: Path, *, times: str = "", blocks: str = "") -> None:
        """WorkloadError where `unit` or `block` is told of a file to which it says nothing, for these reasons."""
        for name, given, why in (("unit", self.unit, times), ("block", self.block, blocks)):
            if given and why:
                raise WorkloadError(f"{shown(path)}: {name}={given}: {why}: leave it out")


NOTHING = Told()
NO_BLOCKS = "this form has no hash_ids"
NO_TIMES = "the file has no times"
