"""What a user says of a trace file that the file does not say itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled


@dataclass(frozen=True, slots=True)
class FileOptions:
    """`unit` of its times (s, ms, us, ns; "": what its form has), `block`: tokens a hash id stands for (0: unknown)."""

    unit: str = ""
    block: int = 0

    def refuse(self, path: Path, *, no_times: str = "", no_blocks: str = "") -> None:
        """WorkloadError where `unit` or `block` is given for a file to which it says nothing, for these reasons."""
        for name, value, why in (("unit", self.unit, no_times), ("block", self.block, no_blocks)):
            if value and why:
                raise WorkloadError(f"{spelled(path)}: {name}={value}: {why}: leave it out")


NOTHING = FileOptions()
NO_BLOCKS = "this form has no hash_ids"
NO_TIMES = "the file has no times"
