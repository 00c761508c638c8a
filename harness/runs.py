"""Reading run directories: find them, load one, or say in a line what is wrong with it."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.errors import UserError
from harness.measure.columns import LONGEST_S
from harness.measure.verdict import NO_VERDICT
from harness.records import LATER, PRODUCED, REQUESTS, STEPS
from harness.runschema import SCHEMA_VERSION, check_concluded, check_manifest, check_summary, read_json
from harness.runspec import RunSpec

__all__ = [
    "PARTIAL",
    "SCHEMA_VERSION",
    "TABLES",
    "Run",
    "find_partials",
    "find_runs",
    "load_run",
    "load_runs",
    "run_path",
    "runs_of",
    "slug",
]

PARTIAL = ".partial"
TABLES = {"requests": REQUESTS, "steps": STEPS}

# Made once: making one looks for a package that is not there.
_LONGEST = pa.scalar(LONGEST_S)
MOST_TOKENS = 10**12

# Of one step: what lies beyond could not be multiplied in 64 bits.
MOST_A_STEP = 10**9

# Rows and bytes of a table in memory, beyond which nothing of ours is and a small file could fill a machine.
MOST_ROWS = {"requests": 5_000_000, "steps": 10_000_000}
MOST_BYTES = 2**30
_STEP_TIMES = ("t_s", "duration_s")
_TOKENS = frozenset(
    {"prompt_tokens", "expected_output_tokens", "output_tokens", "preemptions", "cached_tokens", "kv_tokens"}
)
_OF_STEPS = frozenset({"prefill_tokens", "decode_requests", "running", "waiting", "preempted", *PRODUCED})

_SLUG_LENGTH = 80

# Directories looked into for one run to name in an error.
_LOOKED_AT = 1000
# Directories in a row without a run: a project with its environments has fewer, a disk more.
MOST_WITHOUT = 20_000


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run as its directory holds it; the tables are read when asked for."""

    path: Path
    manifest: dict[str, Any]
    spec: RunSpec
    summary: dict[str, Any]

    @property
    def kind(self) -> str:
        """measured, emulated, simulated or reported."""
        return str(self.manifest["kind"])

    @property
    def status(self) -> str:
        """complete, interrupted or failed."""
        return str(self.manifest["status"])

    @property
    def started(self) -> datetime:
        """When the run started, in UTC; UserError where what stands there is no time of a known zone."""
        try:
            started = datetime.fromisoformat(self.manifest["started_utc"])
            if started.tzinfo is None:
                raise ValueError
            return started.astimezone(UTC)
        except (KeyError, TypeError, ValueError, OverflowError):
            why = "started_utc is no time with its zone: take it from a copy, or run again"
            raise UserError(f"{self.path}/run.json: {why}") from None

    @property
    def level(self) -> str:
        """VALID, DEGRADED or INVALID; NONE of a reported run, which nobody could check."""
        if self.kind == "reported":
            return NO_VERDICT
        return str(self.manifest.get("verdict", {}).get("level", "INVALID"))

    @property
    def told(self) -> dict[str, Any]:
        """What is known of the spec: all of it, or of a reported run what its source tells."""
        if self.kind == "reported":
            return dict(self.manifest["spec"])
        return self.spec.to_dict()

    def requests(self) -> pa.Table:
        """The request table; UserError where there is none or it is damaged."""
        return read_table(self.path, "requests")

    def steps(self) -> pa.Table | None:
        """The step table, None where the engine told nothing of its steps."""
        table = read_table(self.path, "steps")
        return table if table.num_rows else None


def slug(name: str) -> str:
    """A name as a path segment of [a-z0-9._=+-], never empty or hidden; long ones end in a hash."""
    out = re.sub(r"[^a-z0-9._=+-]", "-", name.lower()).lstrip(".-") or "none"
    if len(out) > _SLUG_LENGTH:
        out = f"{out[: _SLUG_LENGTH - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return out


def run_path(out: Path, spec: RunSpec, started: datetime, digest: str | None = None) -> Path:
    """Where a run lands: out / gpu / model / workload / policy / UTC-digest-repeat, each segment a slug.

    `digest` is the one in run.json, None the spec's own: a run from before a field of the spec has another.
    """
    stamp = started.astimezone(UTC).strftime("%Y%m%dt%H%M%S.%fz")
    names = (spec.gpu, spec.model, spec.workload, spec.policy)
    return out.joinpath(*map(slug, names), f"{stamp}-{(digest or spec.digest)[:8]}-r{spec.repeat}")


def load_run(path: Path) -> Run:
    """The run in a directory; UserError, with the file and the remedy, where that cannot be read."""
    if not os.path.isfile(path / "run.json"):
        if is_partial(path) or os.path.isdir(partial_of(path)):
            raise UserError(f"{path}: this run did not finish: `bench recover {path}` makes it readable")
        raise no_run(path)
    manifest = read_json(path / "run.json", "it cannot be mended: run again")
    spec = check_manifest(path / "run.json", manifest)
    if manifest["status"] == "running":
        raise UserError(f"{path}: this run did not finish: `bench recover {path}` makes it readable")
    check_concluded(path / "run.json", manifest)
    summary = read_json(path / "summary.json", f"`bench recover {path}` makes it again", missing_ok=True)
    if summary:
        check_summary(path / "summary.json", summary)
    return Run(path, manifest, spec, summary)


def load_runs(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and a line for each that cannot: one bad run does not hide the others."""
    runs, problems = [], []
    for path in paths:
        try:
            runs.append(load_run(path))
        except UserError as error:
            problems.append(str(error))
    return runs, problems


def find_runs(root: Path) -> list[Path]:
    """The finished runs at and under a directory, in the order of their paths; UserError where it is a whole disk."""
    return [path for path in _walk(root) if not is_partial(path)]


def runs_of(paths: Iterable[Path]) -> list[Path]:
    """The finished runs at and under each path; one that holds none stands as it is, for `load_run` to say why."""
    return [path for given in paths for path in (find_runs(given) if given.is_dir() else [given]) or [given]]


def find_partials(root: Path) -> list[Path]:
    """The runs at and under a directory that go on still or were killed."""
    return [path for path in _walk(root) if is_partial(path)]


def _walk(root: Path, most: int | None = None) -> Iterator[Path]:
    without = 0
    if not os.path.isdir(root):
        raise UserError(f"{root}: no such directory: name one that holds runs (the default of --out is `runs`)")
    for directory, below, files in itertools.islice(os.walk(root), most):
        below.sort()
        if "run.json" in files:
            below.clear()
            without = 0
            yield Path(directory)
            continue
        without += 1
        if without == MOST_WITHOUT:
            raise UserError(
                f"{root}: given up after {MOST_WITHOUT:,} directories in a row without a run: name the one that holds "
                "runs (the default of --out is `runs`)"
            )


def no_run(path: Path) -> UserError:
    """What to say of a path that holds no run: it may be the parent of some."""
    found = next((one for one in _walk(path, _LOOKED_AT) if not is_partial(one)), None) if os.path.isdir(path) else None
    hint = f"name one run, such as {found}" if found else "name one that `bench list` shows"
    return UserError(f"{path}: no run directory (no run.json): {hint}")


def named(path: Path) -> Path:
    """The path with a last part that is its name: `.` and `..` have none."""
    return path if path.name not in ("", "..") else path.resolve()


def is_partial(path: Path) -> bool:
    """Whether this is the directory of a run that goes on still or was killed."""
    name = named(path).name
    return name.endswith(PARTIAL) and name != PARTIAL


def partial_of(path: Path) -> Path:
    """The name of a run's directory while it runs."""
    path = named(path)
    if is_partial(path):
        return path
    # The root has no name to add to.
    return path.with_name(path.name + PARTIAL) if path.name else path / PARTIAL


def final_of(path: Path) -> Path:
    """The name of a run's directory once it is finished."""
    path = named(path)
    return path.with_name(path.name.removesuffix(PARTIAL)) if is_partial(path) else path


def read_table(directory: Path, name: str, columns: Collection[str] | None = None) -> pa.Table:
    """Read a run's `requests` or `steps` (all columns, or some); UserError where it is missing or damaged.

    The file must have the columns of `records` and no others, times within 9e9 s and counts that are counts, and not
    be of a size that fills a machine. Columns that came later than the file are null.
    """
    path = directory / f"{name}.parquet"
    schema = TABLES[name]
    wanted = None if columns is None else [column for column in schema.names if column in columns]
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _damaged(path, "not a regular file")
        # Opened here: given a path, Arrow takes what stands before a colon for a scheme (`--out noisy:1`).
        with pa.OSFile(str(path)) as source, pq.ParquetFile(source) as file:
            if why := _other_columns(file.schema_arrow, schema):
                raise _damaged(path, why)
            if why := _too_large(file.metadata, name):
                raise _damaged(path, why)
            known = schema if wanted is None else pa.schema([schema.field(name) for name in wanted])
            there = [field for field in known if field.name in file.schema_arrow.names]
            if any(_is_heavy(file, field.name) for field in there if not pa.types.is_list(field.type)):
                raise _damaged(path, f"texts of more than {MOST_BYTES >> 20:,} MiB")
            table = file.read(columns=[field.name for field in there])
        for place, field in enumerate(known):
            if field.name not in table.column_names:
                table = table.add_column(place, field, pa.nulls(len(table), field.type))
        table = table.select(known.names).cast(known)
        table.validate(full=True)
        why = next((why for column in table.column_names if (why := _fault(column, table.column(column)))), None)
    except FileNotFoundError:
        raise UserError(f"{path}: not there, so nothing can be computed from this run: run again") from None
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, str(error).splitlines()[0] if str(error) else type(error).__name__) from None
    if why:
        raise _damaged(path, why)
    return table


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path}: damaged ({why[:200]}): take it from a copy, or run again")


def _too_large(footer: pq.FileMetaData, name: str) -> str | None:
    """What a file's footer tells of its size that no run's table has."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    rows = max(footer.num_rows, sum(group.num_rows for group in groups))
    if rows > MOST_ROWS[name]:
        return f"{rows:,} rows, at most {MOST_ROWS[name]:,} are read"
    # What repeats is small in the file and large in memory: values count as well, those of lists one by one.
    values = sum(group.column(i).num_values for group in groups for i in range(group.num_columns) if _is_list(group, i))
    size = max(sum(group.total_byte_size for group in groups), 8 * values)
    return f"{size / 2**20:,.0f} MiB in memory, at most {MOST_BYTES >> 20:,} are read" if size > MOST_BYTES else None


def _is_list(group: Any, column: int) -> bool:
    return "." in group.column(column).path_in_schema


def _is_heavy(file: pq.ParquetFile, name: str) -> bool:
    """Whether a column's texts are too large: one that stands in the file once may stand in a million rows."""
    kind = file.schema_arrow.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_dictionary(kind)):
        return False
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(one.total_uncompressed_size for one in chunks if one.path_in_schema == name)
    if size * file.metadata.num_rows <= MOST_BYTES:
        return False
    total = 0
    # So few rows at a time that they fit even where each holds all that the file has.
    for batch in file.iter_batches(max(64, MOST_BYTES // size), columns=[name]):
        column = batch.column(0)
        total += column.nbytes if pa.types.is_string(column.type) else column.dictionary.nbytes
        if total > MOST_BYTES:
            return True
    return False


def _other_columns(found: pa.Schema, known: pa.Schema) -> str | None:
    """How a file's columns differ from those of the schema."""
    for field in known:
        if field.name in LATER and field.name not in found.names:
            continue
        if field.name not in found.names:
            return f"it has no column {field.name}"
        kind = found.field(field.name).type if found.names.count(field.name) == 1 else None
        plain = pa.types.is_dictionary(field.type) and kind == pa.string()
        if kind != field.type and not plain:
            return f"its column {field.name} is {kind or 'there twice'}, not {field.type}"
    other = sorted(set(found.names) - set(known.names))
    return f"it has a column {other[0]!a} that is none of a run's" if other else None


def _fault(name: str, column: pa.ChunkedArray) -> str | None:
    """What is wrong with a column's values: a time that is none, a count below zero or beyond all bounds."""
    if pa.types.is_list(column.type):
        column = pc.list_flatten(column)
    if pa.types.is_floating(column.type) and name.endswith("_s"):
        fits = pc.less_equal(pc.abs(column), _LONGEST)
        if pc.all(fits).as_py() is False:
            return f"its column {name} holds a time that is not finite or beyond {LONGEST_S:g} s"
    if name in _STEP_TIMES and (column.null_count or (len(column) and pc.min(column).as_py() < 0)):
        return f"its column {name} holds a time that is not there or below 0"
    if name in _TOKENS or name in _OF_STEPS:
        most = MOST_TOKENS if name in _TOKENS or name.endswith("_sum") else MOST_A_STEP
        ends = pc.min_max(column).as_py()
        if ends["min"] is not None and (ends["min"] < 0 or ends["max"] > most):
            return f"its column {name} holds a count below 0 or above {most}"
    return None
