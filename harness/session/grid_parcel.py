"""A run on its way home: packed where it was made, checked where it arrives, put in its place whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.core.errors import UserError
from harness.core.files import sync
from harness.runs.run import load_run
from harness.session.grid_plan import Cell
from harness.session.grid_state import FOLDER, place_of

ARRIVING = "arriving"


class DamagedError(Exception):
    """What arrived is not what was sent, or no run of the cell; the text says which."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """The files of a run by their names, with the sha256 (hex) that each had where it was made; `place` below --out."""

    place: str
    files: Mapping[str, bytes]
    sha256: Mapping[str, str]


def pack(run: Path, out: Path) -> Parcel:
    """The files of a run under `out` on this machine."""
    files = {file.name: file.read_bytes() for file in sorted(run.iterdir()) if file.is_file()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return Parcel(run.relative_to(out).as_posix(), files, digests)


def unpack(parcel: Parcel, cell: Cell, out: Path) -> Path:
    """Puts a run that arrived where it belongs; its directory. One that is there already stays.

    DamagedError where a file is not the one that was sent, or the run is not whole or not the cell's.
    """
    place = PurePosixPath(parcel.place)
    if place.is_absolute() or ".." in place.parts:
        raise DamagedError(f"its place is {parcel.place!a}, which is not below --out")
    for name, digest in parcel.sha256.items():
        if "/" in name or hashlib.sha256(parcel.files.get(name, b"")).hexdigest() != digest:
            raise DamagedError(f"{name} is not the file that was sent")
    target = place_of(out, cell.second) / place
    part = out / FOLDER / ARRIVING / cell.key
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        for name in parcel.sha256:
            (part / name).write_bytes(parcel.files[name])
        _check(part, cell)
        if target.exists():
            return target
        sync(part)
        target.parent.mkdir(parents=True, exist_ok=True)
        part.rename(target)
        sync(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _check(directory: Path, cell: Cell) -> None:
    """DamagedError where a directory holds no whole run of the cell."""
    try:
        run = load_run(directory)
        requests = run.requests().num_rows
    except UserError as error:
        raise DamagedError(str(error).replace(f"{directory}/", "")) from None
    if run.manifest["digest"] != cell.digest:
        raise DamagedError("it is the run of another spec")
    if requests != run.manifest.get("counts", {}).get("requests"):
        raise DamagedError(f"requests.parquet has {requests} rows, run.json counts otherwise")
