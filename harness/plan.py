"""From what a user asks for to the runs it takes: names made canonical, arms paired, order interleaved."""

from __future__ import annotations

import contextlib
import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.errors import UserError
from harness.lengths import check_used, known_offline, known_to
from harness.measure.metrics import SLO_METRICS
from harness.profiles import load_gpu, load_model, model_name
from harness.runspec import RunSpec
from policies.catalog import VLLM_OWN, canonical_policy
from policies.offline import canonical_offline
from workloads import options
from workloads.arrivals import Arrival, Closed, ClosedPhases, FromTrace, own_arrival, parse_arrival
from workloads.catalog import canonical_workload
from workloads.trace import Trace

DEFAULT_CONCURRENCY = 2048
DEFAULT_REQUESTS = 4000
ENGINES = ("auto", "simulated", "emulated", "tokenstep", "vllm", "endpoint")

_OPTION = re.compile(r"[^:=,]+=")


@dataclass(frozen=True, slots=True)
class Asked:
    """What `bench run` was asked for: every combination of gpu, workload and policy, `repeat` times."""

    gpus: tuple[str, ...]
    policies: tuple[str, ...]
    workloads: tuple[str, ...]
    template: RunSpec
    requests: int | None = None
    repeat: int = 1


def split_policies(texts: Sequence[str]) -> list[str]:
    """Policies from `P[,P…]`, each with its options: `v1,eb:k=32,theta_min=0.7,ebplus` names three.

    A part that is an option (`key=value` without a colon before it) belongs to the policy before it.
    """
    found: list[str] = []
    for text in texts:
        first = len(found)
        for part in text.split(","):
            if _OPTION.match(part) and len(found) > first:
                found[-1] += ("," if ":" in found[-1] else ":") + part
            else:
                found.append(part.strip())
    return found


def read_policy(text: str) -> tuple[str, dict[str, str]]:
    """A policy's name and options; UserError where a part is no option."""
    name, _, rest = text.partition(":")
    given: dict[str, str] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"policy {text}: {part!r} is not an option: write key=value, such as eb:k=32")
        if key.strip() in given:
            raise UserError(f"policy {text}: {key.strip()} is given twice")
        given[key.strip()] = value.strip()
    return name.strip(), given


def canonical_policies(texts: Sequence[str], engine: str = "auto") -> list[str]:
    """The policies asked for in canonical form, each once, in the order given."""
    canonical = canonical_offline if engine == "tokenstep" else canonical_policy
    return _once([canonical(*read_policy(text)) for text in split_policies(texts)])


def dropped(given: Sequence[str], kept: Sequence[str]) -> list[str]:
    """What to say where policies given under several names are one and run once."""
    if len(given) == len(kept):
        return []
    return [f"{', '.join(given)}: the same policy under several names runs once; left are {', '.join(kept)}"]


def read_arrival(text: str | None, rate: float | None, concurrency: int | None) -> Arrival | None:
    """The arrival that --arrival, --rate and --concurrency ask for together; None where none of them is given."""
    if text is None and rate is None and concurrency is None:
        return None
    return parse_arrival(text or "", rate=rate, concurrency=concurrency)


def arrival_of(trace: Trace, asked: str) -> Arrival:
    """The arrival asked for, else the trace's own, else a closed loop of 2,048.

    UserError where a drift in how requests arrive is asked to arrive in another way.
    """
    own = own_arrival(trace)
    if not asked:
        return own or Closed(DEFAULT_CONCURRENCY)
    arrival = parse_arrival(asked)
    fits = arrival == own or (isinstance(own, FromTrace) and isinstance(arrival, FromTrace))
    if own is None or fits or trace.source.get("kind") != "synthetic":
        return arrival
    told = "a schedule of concurrency" if isinstance(own, ClosedPhases) else "a schedule of arrivals"
    raise UserError(
        f"--workload {trace.source['workload']} is {told} of its own: leave out --arrival, --rate and --concurrency, "
        "or take another workload (synthetic:mu_l=512,mu_o=256 has one level)"
    )


def requests_of(trace: Trace) -> int:
    """How many requests a run takes where nobody says: 4,000, or all of a trace that has fewer or drifts."""
    return len(trace) if "phases" in trace.source else min(DEFAULT_REQUESTS, len(trace))


def read_slo(text: str | None) -> dict[str, float]:
    """`ttft_s=1.0,tpot_s=0.05` as limits in seconds; UserError where it is not."""
    limits: dict[str, float] = {}
    for part in text.split(",") if text else []:
        name, _, value = part.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = 0.0
        if name.strip() in limits:
            raise UserError(f"--slo {text}: {name.strip()} is given twice")
        if name.strip() not in SLO_METRICS or not 0 < limit < 1e9:
            raise UserError(
                f"--slo {text}: write METRIC=SECONDS, such as ttft_s=1,tpot_s=0.05, of {', '.join(SLO_METRICS)}"
            )
        limits[name.strip()] = limit
    return limits


def plan_runs(asked: Asked, load: Callable[[str, int | None], Trace]) -> list[RunSpec]:
    """The runs in the order in which they go; `load` gives so many rows of a workload, None all that it has.

    Without an arrival (the template's is empty) a run takes the workload's own.
    Repeat i has seed + i, equal across the policies, so that arms are paired. Within a repeat the order of
    the policies is shuffled (seeded), so that none always goes first.
    """
    gpus, policies, models = _names(asked)
    workloads = _once([canonical_workload(*options.split(text)) for text in asked.workloads])
    if asked.template.engine != "tokenstep" and asked.template.token_budget < asked.template.slots:
        raise UserError(
            f"--token-budget {asked.template.token_budget} is below --slots {asked.template.slots}: "
            "every running request needs a token a step (vLLM refuses it too); raise the budget or lower the slots"
        )
    lengths = asked.template.lengths
    engine = asked.template.engine
    if engine not in ("endpoint", "tokenstep"):
        check_used(policies, lengths)
    know = {"endpoint": lambda _, given: given, "tokenstep": known_offline}.get(engine, known_to)
    runs = []
    for gpu, model in zip(gpus, models, strict=True):
        for workload in workloads:
            trace = load(workload, asked.requests)
            requests = requests_of(trace) if asked.requests is None else asked.requests
            arrival = arrival_of(trace, asked.template.arrival).canonical
            for repeat in range(asked.repeat):
                seed = asked.template.seed + repeat
                order = list(policies)
                random.Random(seed).shuffle(order)  # noqa: S311 - an order, no secret
                runs += [
                    replace(
                        asked.template,
                        gpu=gpu,
                        model=model,
                        workload=workload,
                        arrival=arrival,
                        policy=policy,
                        requests=requests,
                        seed=seed,
                        repeat=repeat,
                        lengths=know(policy, lengths),
                    )
                    for policy in order
                ]
    return runs


def _names(asked: Asked) -> tuple[list[str], list[str], list[str]]:
    """GPUs, policies and the model on each GPU by canonical names; as given where a server is not ours."""
    if asked.template.engine == "endpoint":
        gpus, policies = _once(list(asked.gpus)), _once(list(asked.policies))
        if len(gpus) > 1 or len(policies) > 1:
            raise UserError(
                "--engine endpoint drives the one server that runs there: give one --policy and one --gpu to label it, "
                "and run again for the next"
            )
        return gpus, policies, [asked.template.model] * len(gpus)
    real = asked.template.engine == "vllm"
    policies = canonical_policies(asked.policies, asked.template.engine)
    if not real and (only := [policy for policy in policies if read_policy(policy)[0] in VLLM_OWN]):
        raise UserError(f"policy {only[0]} is a setting of real vLLM: it goes with --engine vllm alone")
    gpus = _once([_gpu_name(gpu, real) for gpu in asked.gpus])
    return gpus, policies, [_model_name(gpu, asked.template.model, real) for gpu in gpus]


def _gpu_name(gpu: str, any_name: bool) -> str:
    """A GPU's name as the profiles have it; as it is given where they need not know it."""
    if gpu.endswith(".toml"):
        return gpu
    try:
        return load_gpu(gpu).name
    except UserError:
        if not any_name:
            raise
        return gpu


def _model_name(gpu: str, model: str, any_name: bool) -> str:
    """A model's name on a GPU as the profiles have it; as it is given where they need not know it."""
    if any_name and os.path.isdir(model):
        return model
    try:
        return model_name(gpu, model)
    except UserError:
        if not any_name:
            raise
    with contextlib.suppress(UserError):
        return load_model(model).name
    return model


def _once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))
