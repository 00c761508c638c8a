"""Which run.json of a grid's directory were read to be finished runs, so that the next look opens none of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from harness.core.runspec import RunSpec

INDEX = "finished.tsv"
# Digests change with the fields of a spec: what another version wrote holds no more.
_FORM = RunSpec("", "", "", "").digest

Stamp = tuple[int, int]


class FinishedIndex:
    """Digests of finished runs by their places below --out, each true as long as its run.json is the file it was.

    Read from the `folder` of a grid's own files, where a damaged or missing line costs one more look and nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / INDEX
        self._known: dict[str, tuple[Stamp, str]] = {}
        self._new: list[str] = []
        with contextlib.suppress(OSError, ValueError):
            form, *lines = self._path.read_text(encoding="utf-8").split("\n")
            if form == _FORM:
                for line in lines:
                    place, _, rest = line.partition("\t")
                    with contextlib.suppress(ValueError):
                        changed_ns, size, digest = rest.split("\t")
                        self._known[place] = (int(changed_ns), int(size)), digest
        if not self._known:
            self._new.append(_FORM)

    def look_up(self, place: str, run_json: str) -> str | None:
        """The digest of the run at a place; None where nobody looked, or its run.json has changed since."""
        stamp, digest = self._known.get(place, (None, None))
        return digest if stamp is not None and stamp == stamp_of(run_json) else None

    def add(self, place: str, run_json: str, digest: str) -> None:
        """Remembers a finished run."""
        stamp = stamp_of(run_json)
        # A name with a line break is none of a grid's.
        if stamp is not None and "\n" not in place and "\t" not in place:
            self._known[place] = stamp, digest
            self._new.append(f"{place}\t{stamp[0]}\t{stamp[1]}\t{digest}")

    def write(self) -> None:
        """Adds what is new to the file; where that cannot be written the next look reads more."""
        if not self._new:
            return
        mode = "w" if self._new[0] == _FORM else "a"
        with contextlib.suppress(OSError), self._path.open(mode, encoding="utf-8") as file:
            # A line that a power cut tore ends here.
            file.write("".join(f"{line}\n" for line in self._new) if mode == "w" else "\n" + "\n".join(self._new))
        self._new = []


def stamp_of(path: str) -> Stamp | None:
    """What tells that a file is the one that was read: when it changed (ns), and its size; None where none is there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
