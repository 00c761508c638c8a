"""Reads the options of `bench run` into the runs that they ask for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.core.errors import UserError
from harness.core.host import read_host
from harness.core.routers import ROUTERS
from harness.core.runspec import RunSpec
from harness.core.text import nearest, shown
from harness.measure.looks import LOOKS
from harness.measure.metrics import SLO_METRICS
from harness.profiles.memory import BLOCK
from harness.profiles.pair import KINDS
from harness.session.options import RunOptions
from harness.session.policy_files import named_policies
from harness.session.profile_files import ProfileFile, profile_files
from policies.own.file import PolicyFile
from workloads.catalog import is_name
from workloads.core.arrivals import Offline, parse_arrival
from workloads.lengths.hints import canonical_lengths

DEFAULT_MODEL = "Qwen/Qwen3-8B"
EXAMPLES = {"gpus": "gpu l40s", "policies": "policy v1,ebplus", "workloads": "workload sharegpt"}

# A simulated repeat costs seconds, and a word needs a spread between runs.
SIMULATED_REPEATS = 5
# Where a width ends the repeats, so many are the most.
MOST_UNTIL = LOOKS[-1]

_OPTION = re.compile(r"[^:=,]+=")


@dataclass(frozen=True, slots=True)
class Asked:
    """What `bench run` was asked for: every combination of gpu, workload, slots, arrival and policy, `repeat` times.

    Where `slots` are none the template's hold; an arrival that is empty is the workload's own. `profiles` are the
    profile files among the GPUs, by the labels that runs on them go by; `policy_files` are the files among the
    policies, which then have their canonical names. `usual` repeats are those that nobody asked for.
    """

    gpus: tuple[str, ...]
    policies: tuple[str, ...]
    workloads: tuple[str, ...]
    template: RunSpec
    requests: int | None = None
    slots: tuple[int, ...] = ()
    repeat: int = 1
    profiles: Mapping[str, ProfileFile] = field(default_factory=dict)
    alone: bool = False
    policy_files: Mapping[str, PolicyFile] = field(default_factory=dict)
    arrivals: tuple[str, ...] = ("",)
    usual: bool = False


def usual_repeats(options: RunOptions, engine: str) -> int:
    """How often each run goes where nobody says: policies that are compared in virtual time five times, others once."""
    if options.until is not None:
        return MOST_UNTIL
    return SIMULATED_REPEATS if engine == "simulated" and len(split_policies(options.policies)) > 1 else 1


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


def split_workloads(texts: Sequence[str]) -> list[str]:
    """Workloads from `W[,W…]`, each with its options: `lmsys,synthetic:mu_l=64,mu_o=32,file:a,b.jsonl` names three.

    After a colon a part belongs to the workload before it unless it begins with the name of one.
    """
    found: list[str] = []
    for text in texts:
        first = len(found)
        for part in text.split(","):
            before = found[-1] if len(found) > first else ""
            begins = not before or (":" not in before and "=" not in part) or is_name(part.partition(":")[0])
            if begins and before.count('"') % 2 == 0:
                found.append(part)
            else:
                found[-1] += ("," if ":" in before else ":") + part
    return found


def asked_of(options: RunOptions, engine: str, client: dict[str, Any] | None = None) -> Asked:
    """The runs that the options ask for on this engine; UserError where one is missing or cannot be had.

    `client` says how a server is driven, where one is.
    """
    check_sharing(options, engine)
    check_costs(options, engine)
    for name, example in EXAMPLES.items():
        if not getattr(options, name):
            raise UserError(f"bench run needs --{example.split()[0]}, such as --{example}")
    policies, policy_files = named_policies(split_policies(options.policies), engine)
    template = RunSpec(
        gpu="",
        model=options.model or DEFAULT_MODEL,
        policy="",
        workload="",
        engine=engine,
        slots=options.slots[0],
        token_budget=options.token_budget,
        seed=options.seed,
        block_size=options.block_size or BLOCK,
        kv_tokens=options.kv_tokens,
        max_model_len=options.max_model_len,
        watermark=options.watermark,
        cost_model=options.cost_model,
        max_duration_s=options.max_duration_s,
        slo=read_slo(options.slo),
        client=client or {},
        alpha=options.alpha,
        lengths=canonical_lengths(options.lengths),
        engine_args=options.engine_args,
        sessions=options.sessions,
        think_s=options.think_s,
        prefix_caching=options.prefix_caching,
        tp=options.tp,
        replicas=options.replicas,
        router=router_of(options, engine),
        host=read_host(options.host).canonical,
        policy_costs=options.policy_costs,
    )
    return Asked(
        gpus=tuple(options.gpu_names),
        policies=tuple(policies),
        workloads=tuple(split_workloads(options.workloads)),
        template=template,
        arrivals=read_arrivals(options, engine),
        requests=options.requests,
        slots=options.slots,
        repeat=options.repeat or usual_repeats(options, engine),
        usual=options.repeat is None,
        profiles=profile_files(options.gpu_names),
        alone=options.alone,
        policy_files=policy_files,
    )


def check_sharing(options: RunOptions, engine: str) -> None:
    """UserError where a time to think, a prefix cache or replicas are asked for that could not be had."""
    router_of(options, engine)
    if options.think_s and not options.sessions:
        raise UserError("--think-time goes with --sessions: only a conversation's next turn waits")
    if engine == "endpoint" and options.prefix_caching is not None:
        raise UserError("--prefix-caching: a server that runs already has its own setting: leave it out")


def router_of(options: RunOptions, engine: str) -> str:
    """The rule by which requests go to replicas, empty where there is one; UserError where there cannot be several."""
    if options.replicas == 1:
        if options.router is not None:
            raise UserError("--router goes with --replicas: one engine needs none")
        return ""
    if engine != "simulated":
        remedy = {
            "endpoint": "give the URL of the router that stands before them",
            "vllm": "start them yourself (vllm serve --data-parallel-size) and name their address by --url",
        }.get(engine, "leave it out")
        raise UserError(f"--replicas goes with --engine simulated: with {engine} {remedy}")
    return options.router or ROUTERS[0]


def check_costs(options: RunOptions, engine: str) -> None:
    """UserError where something is said of step costs that the engine does not take from a cost model."""
    if options.policy_costs and options.policy_costs not in KINDS:
        raise UserError(
            f"--policy-costs {shown(options.policy_costs)}: no such cost model{nearest(options.policy_costs, KINDS)} "
            f"Use one of {', '.join(KINDS)}"
        )
    for name, given in (("host", options.host), ("policy-costs", options.policy_costs)):
        if given and engine not in ("simulated", "emulated"):
            raise UserError(
                f"--{name} says what steps cost in virtual time: it goes with --engine simulated or emulated"
            )


def read_arrivals(options: RunOptions, engine: str) -> tuple[str, ...]:
    """The arrivals that --arrival, --rate and --concurrency ask for together, each once.

    Where none of them is given it is empty: the workload decides. The token-step model then takes all requests at once.
    """
    if options.arrival is None and not options.rates and not options.concurrencies:
        return (Offline().canonical if engine == "tokenstep" else "",)
    loads = itertools.product(options.rates or (None,), options.concurrencies or (None,))
    text = options.arrival or ""
    arrivals = [parse_arrival(text, rate=rate, concurrency=concurrency).canonical for rate, concurrency in loads]
    return tuple(dict.fromkeys(arrivals))


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


def dropped(given: Sequence[str], kept: Sequence[str]) -> list[str]:
    """What to say where policies given under several names are one and run once."""
    if len(given) == len(kept):
        return []
    return [f"{', '.join(given)}: the same policy under several names runs once; left are {', '.join(kept)}"]
