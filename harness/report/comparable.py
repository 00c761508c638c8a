"""Whether two arms may be compared: what differs, which repeats meet, what forbids a ranking."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.core.text import nearest, one_line, short, some, spelled
from harness.measure.columns import Ints
from harness.measure.facts import Facts
from harness.measure.measured import VIRTUAL_ENGINES
from harness.runs.run import Run
from policies.catalog import use_of
from policies.entry import IGNORED

# Provenance that must be equal across arms, and what brings a difference in it along once allowed to differ.
_SAME = {
    "stream_digest": ("trace", "workload", "model", "requests", "arrival", "seed"),
    "trace_digest": ("trace", "workload", "model", "requests", "seed"),
    "cost_model": ("cost_model", "gpu", "model", "engine", "kind"),
    "engine_version": ("engine_version", "engine", "kind"),
    "async_scheduling": ("async_scheduling", "engine", "kind"),
}

# The world of a real engine, which must be the same too: what stands in provenance, and which keys of it count.
_WORLD: dict[str, tuple[str, ...]] = {
    "host": ("machine", "cpu", "cores"),
    "gpus": (),
    "engine_kind": (),
    "engine_packages": (),
    "engine_settings": ("dtype", "cache_dtype", "gpu_memory_utilization", "enable_prefix_caching"),
    "url": (),
    "path": (),
}

# An engine and the kind of its numbers go together: allowing one is enough.
_TOGETHER = {"kind": ("engine", "kind"), "engine": ("engine", "kind")}

# What a message may hold and still be read at a glance.
LONGEST_LINE = 300

# Mean clocks of two runs' GPUs may differ by this share.
CLOCKS_APART = 0.03

MAY_ALLOW = frozenset(
    {field.name for field in dataclasses.fields(RunSpec)} | set(_SAME) | set(_WORLD) | {"kind", "trace"}
)


def end_of_path(run: Run) -> str:
    """The end of a run's path, which tells it from others."""
    text = one_line(str(run.path))
    return text if len(text) <= 90 else f"…{text[-89:]}"


def differences(a: Run, b: Run) -> dict[str, tuple[Any, Any]]:
    """What differs between two runs: kind, fields of the spec, provenance that must agree."""
    left, right = ({"kind": run.kind} | run.known_spec for run in (a, b))
    # What a published figure does not say cannot be held against it.
    unequal = {name: (left[name], right[name]) for name in left if name in right and left[name] != right[name]}
    # The number of the repeat tells repeats apart and decides nothing: the seed does.
    unequal.pop("repeat", None)
    # A policy's name has the first digits of its file's digest.
    unequal.pop("policy_sha256", None)
    for name in _SAME:
        values = tuple(run.manifest.get("provenance", {}).get(name) for run in (a, b))
        # What one of them does not say cannot be held against it.
        if None not in values and values[0] != values[1]:
            unequal.setdefault(name, values)
    if all(run.spec.engine not in VIRTUAL_ENGINES for run in (a, b)):
        for name, keys in _WORLD.items():
            left_part, right_part = (_part(run.manifest.get("provenance", {}).get(name), keys) for run in (a, b))
            if left_part and right_part and left_part != right_part:
                unequal.setdefault(name, (left_part, right_part))
    return unequal


def _part(value: Any, keys: Sequence[str]) -> Any:
    """What counts of a part of the provenance: the keys of it, as text where it is a group; None where it is silent."""
    if keys and isinstance(value, dict):
        return {key: value[key] for key in keys if key in value} or None
    return value


def allowed(name: str, allow: Collection[str]) -> bool:
    """Whether `--allow` lets a difference in `name` pass, by itself or by what brings it along."""
    return not {name, *_SAME.get(name, ()), *_TOGETHER.get(name, ())}.isdisjoint(allow)


def refuse_differences(pairs: Sequence[tuple[Run, Run]], allow: Collection[str]) -> None:
    """Raise UserError where a pair differs in anything but the policy that is not allowed to differ.

    What a scheduler knew of output lengths may differ where one of the policies would not look at it.
    """
    unknown = sorted(set(allow) - MAY_ALLOW)
    if unknown:
        others = ", ".join(sorted({"kind", "trace"} | _SAME.keys() | _WORLD.keys()))
        raise UserError(
            f"--allow {one_line(unknown[0])[:12]}: not known{nearest(unknown[0], MAY_ALLOW)} "
            f"It takes a field of the spec in run.json, or one of {others}"
        )
    for pair in pairs:
        unequal = differences(*pair)
        refused = [name for name in unequal if name != "policy" and not allowed(name, allow)]
        if "lengths" in refused and knowledge_may_differ([run.spec for run in pair]):
            refused.remove("lengths")
        if refused:
            raise UserError(_refusal_line({name: unequal[name] for name in refused}))


def _refusal_line(refused: dict[str, tuple[Any, Any]]) -> str:
    """The line that names the differences: as many with their values as fit it, the rest by name."""
    names = list(refused)
    values = [f"{name}: {short(a)} | {short(b)}" for name, (a, b) in refused.items()]
    listed = ",".join(names) if len(names) <= 5 else "with all their names"
    remedy = f" (to compare them all the same: --allow {listed})"
    most = len(values)
    while True:
        rest = [some(names[most:], 8)] if most < len(values) else []
        line = f"not comparable, A and B differ in more than the policy: {'; '.join(values[:most] + rest)}{remedy}"
        if len(line) < LONGEST_LINE or not most:
            return line
        most -= 1


@dataclass(frozen=True, slots=True)
class Unranked:
    """Why runs are shown and not ranked: the word that stands beside each metric, and the reason."""

    word: str
    reason: str


def why_unranked(runs: Sequence[Run]) -> Unranked | None:
    """Why these runs are not ranked, None if they are."""
    for run in runs:
        if run.level == "INVALID" and not run.is_overloaded:
            reasons = run.manifest.get("verdict", {}).get("reasons") or ["INVALID: no verdict"]
            return Unranked("not compared: INVALID", f"{short(run.spec.policy)} is {spelled(reasons[0], 200)}")
    engines = {run.spec.engine for run in runs}
    if "tokenstep" in engines and len(engines) > 1:
        reason = "the token-step model counts steps of its own: never ranked against another engine"
        return Unranked("not ranked", reason)
    kinds = sorted({run.kind for run in runs})
    if len(kinds) > 1:
        return Unranked("not ranked", f"{' against '.join(kinds)} is never ranked")
    if kinds == ["reported"]:
        return Unranked("not ranked", "reported figures come without tables to compare")
    return None


def shared_rows(runs: Sequence[Run]) -> str | None:
    """What to say where the repeats of an arm replay rows of the trace that another repeat replays too."""
    replayed: list[Ints] = []
    size = 0
    for run in runs:
        window = run.manifest.get("provenance", {}).get("trace", {}).get("window")
        if not isinstance(window, dict) or window.get("order") != "file":
            return None
        size = int(window["of"])
        replayed.append((int(window["start"]) + np.arange(int(window["rows"]))) % size)
    if len(replayed) < 2:
        return None
    together = sum(len(np.unique(rows)) for rows in replayed)
    distinct = len(np.unique(np.concatenate(replayed)))
    if distinct == together:
        return None
    return (
        f"repeats share rows: {together:,} replayed, {distinct:,} of the trace's {size:,} distinct; "
        "the interval is somewhat too narrow"
    )


def unequal_kv(pairs: Sequence[tuple[Run, Run]]) -> str | None:
    """What to say where engines that measured their KV cache themselves came to another size."""
    for a, b in pairs:
        left, right = (run.manifest.get("provenance", {}).get("kv_cache_tokens") for run in (a, b))
        if None not in (left, right) and left != right:
            return f"the KV caches differ ({left:,} and {right:,} tokens): --kv-tokens gives every arm the same"
    return None


def unequal_clocks(pairs: Sequence[tuple[Run, Run]]) -> str | None:
    """What to say where the GPUs of two runs held mean clocks that differ by more than 3 %: no policy did that."""
    for a, b in pairs:
        left, right = map(mean_clock, (a, b))
        if left and right and max(left, right) > (1 + CLOCKS_APART) * min(left, right):
            apart = 100 * (max(left, right) / min(left, right) - 1)
            return (
                f"DEGRADED: the GPUs' mean clocks differ by {apart:.1f} % ({left:,.0f} and {right:,.0f} MHz): "
                "power or heat held one of them down; cool it, or fix the clocks (nvidia-smi --lock-gpu-clocks)"
            )
    return None


def mean_clock(run: Run) -> float | None:
    """The mean clock of a run's GPUs, MHz; None where it was not recorded."""
    cards = (run.manifest.get("machine") or {}).get("gpus") or ()
    clocks = [card["sm_clock_mhz"] for card in cards if card.get("sm_clock_mhz")]
    return sum(clocks) / len(clocks) if clocks else None


# Answers that end by themselves may differ in length by so much in a pair, %: work that differs more is another load.
LIKE_WORK = 1.0


def unequal_work(facts: Sequence[tuple[Facts, Facts]], pairs: Sequence[tuple[Run, Run]]) -> Unranked | None:
    """Why arms whose answers end by themselves are not ranked: in a pair they gave different numbers of tokens.

    Answers that are all shorter than asked for in both arms alike are no fault.
    """
    if all(run.spec.client.get("ignore_eos", True) for pair in pairs for run in pair):
        return None
    for (left, right), (a, b) in zip(facts, pairs, strict=True):
        made = [left.output_tokens, right.output_tokens]
        apart = 100 * abs(made[1] / made[0] - 1) if made[0] else 0.0
        if apart > LIKE_WORK:
            reason = (
                f"answers end by themselves, and {short(b.spec.policy)} gave {made[1]:,} tokens where "
                f"{short(a.spec.policy)} gave {made[0]:,} ({apart:.1f} % apart): not the same work"
            )
            return Unranked("not compared: other work", reason)
    return None


def repeats_that_count(facts: Sequence[Facts], virtual: bool) -> tuple[str | None, bool]:
    """What to say where the repeats of these facts are not independent, and whether all still count."""
    if len(facts) < 2:
        return None, True
    if len({one.stream for one in facts}) < len(facts):
        if virtual:
            return "repeats are not independent: some replay the same stream, so only the first pair counts", False
        return "repeats are not independent: they replay the same stream, and the interval speaks for it alone", True
    if len({one.asked for one in facts}) < len(facts):
        return (
            "repeats are not independent: they replay the same requests in another order, and the interval "
            "speaks for these requests alone"
        ), True
    return None, True


def knowledge_may_differ(specs: Sequence[RunSpec]) -> bool:
    """Whether what the schedulers knew of lengths may differ: one of the policies would not look at it."""
    return any(use_of(spec.policy) == IGNORED for spec in specs)


def undeployable(specs: Sequence[RunSpec]) -> list[str]:
    """What to say beside a comparison of results that nobody could have in production."""
    labels = dict.fromkeys(spec.label for spec in specs if spec.lengths == "oracle")
    return [f"{label}: knew every output length beforehand, so it could not be deployed" for label in labels]
