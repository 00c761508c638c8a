"""What the runs of one calibration have in common: machine, model, engine, KV capacity."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError
from harness.runs.run import Run


@dataclass(frozen=True, slots=True)
class Origin:
    """What the runs have in common, and which they are (`<directory> <digest of its step log>`).

    `gpu` is the GPU's name, `profile` what its profile is read by: the same, or a file's path.
    """

    kind: str
    gpu: str
    model: str
    engine: str
    machine: str
    kv_tokens: int
    runs: tuple[str, ...]
    profile: str
    notes: tuple[str, ...] = ()


def origin_of(runs: Sequence[Run], kv_tokens: int | None) -> Origin:
    """The origin of a calibration; `kv_tokens` stands in for what the runs tell of the capacity.

    UserError where the runs do not belong together, or none tells its capacity.
    """
    common = _in_common(runs)
    notes: list[str] = []
    if kv_tokens is None:
        kv_tokens, notes = _kv_tokens(runs)
    if common["kind"] != "measured":
        notes.append(f"these runs are {common['kind']}: the constants are those of a model, not of a machine")
    return Origin(
        kind=common["kind"],
        gpu=common["GPU"],
        model=common["model"].rstrip("/"),
        engine=common["engine"],
        machine=common["machine"],
        kv_tokens=kv_tokens,
        runs=tuple(f"{run.path.resolve().name} steps:{_digest(run.path)}" for run in runs),
        profile=runs[0].profile,
        notes=tuple(notes),
    )


def _in_common(runs: Sequence[Run]) -> dict[str, str]:
    """What all runs must agree in, by name; UserError where they do not."""
    facts = [_facts(run) for run in runs]
    for name in facts[0]:
        values = list(dict.fromkeys(of_run[name] for of_run in facts))
        if len(values) > 1:
            raise UserError(
                f"these runs differ in {name} ({', '.join(map(str, values[:4]))}): a profile is for one: "
                "name the runs of one of them"
            )
    return facts[0]


def _facts(run: Run) -> dict[str, str]:
    provenance = run.manifest["provenance"]
    host = provenance.get("host", {})
    engine = " ".join(str(provenance[key]) for key in ("engine", "engine_version") if provenance.get(key))
    # A virtual run costs the same on every host.
    machine = f"{host.get('cpu', 'unknown')}, {host.get('cores', '?')} cores" if run.kind == "measured" else "any"
    return {
        "kind": run.kind,
        "GPU": run.spec.gpu,
        "model": run.spec.model,
        "engine": engine or "unknown",
        "machine": machine,
    }


def _kv_tokens(runs: Sequence[Run]) -> tuple[int, list[str]]:
    """The KV capacity of the machine as its runs tell it, tokens, and what to say of it."""
    capacities = [(run, _capacity(run)) for run in runs]
    known = [(run, tokens) for run, tokens in capacities if tokens]
    # A cache made small on purpose says nothing of the machine.
    own = [tokens for run, tokens in known if run.spec.kv_tokens is None] or [tokens for _, tokens in known]
    if not own:
        raise UserError("none of these runs tells its KV capacity: give it with --kv-tokens")
    largest = max(own)
    if len(set(own)) > 1:
        return largest, [f"the runs' KV capacities differ ({min(own):,} to {largest:,}): the largest stands"]
    if all(run.spec.kv_tokens is not None for run in runs):
        return largest, [f"every run had --kv-tokens: the profile's {largest:,} are theirs, not the machine's own"]
    return largest, []


def _capacity(run: Run) -> int | None:
    """KV tokens as the engine had them; None where nobody tells."""
    provenance = run.manifest["provenance"]
    for key, size in (("kv_cache_tokens", 1), ("kv_blocks", run.spec.block_size)):
        value = provenance.get(key)
        if type(value) is int and value > 0:
            return value * size
    return run.spec.kv_tokens


def _digest(path: Path) -> str:
    with (path / "steps.parquet").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]
