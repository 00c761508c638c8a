"""From what a user asks for to the runs it takes: names made canonical, arms paired, order interleaved."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.measure.start_and_end import ENOUGH_WAVES
from harness.profiles.files import load_gpu
from harness.profiles.models import canonical_model
from harness.profiles.names import model_name, model_on
from harness.profiles.pair import load_pair
from harness.session.ask import Asked, split_policies
from harness.session.lengths import check_used, known_offline, known_to
from harness.session.policy_files import sha256_of
from harness.session.profile_files import ENDING, labels_of
from policies.batching import V0_ENGINE
from policies.catalog import POOLS, STOCK, canonical_policy, read_policy
from policies.offline.catalog import canonical_offline
from policies.own.file import is_own
from workloads.catalog import canonical_workload
from workloads.core import options
from workloads.core.arrivals import Arrival, Closed, ClosedPhases, FromTrace, parse_arrival
from workloads.core.stream import own_arrival
from workloads.core.trace import Trace

DEFAULT_CONCURRENCY = 2048
DEFAULT_REQUESTS = 4000


def canonical_policies(texts: Sequence[str], engine: str = "auto") -> list[str]:
    """The policies asked for in canonical form, each once, in the order given."""
    canonical = canonical_offline if engine == "tokenstep" else canonical_policy
    # Those in files have their canonical names already.
    return _once([text if is_own(text) else canonical(*read_policy(text)) for text in split_policies(texts)])


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


def requests_of(trace: Trace, arrival: str = "") -> int:
    """How many requests a run takes where nobody says: 4,000, or ten waves of a closed loop.

    All of a trace that drifts, and no more than a file holds; what is drawn has no end.
    """
    if "phases" in trace.source:
        return len(trace)
    kind, _, level = arrival.partition(":concurrency=")
    wanted = max(DEFAULT_REQUESTS, ENOUGH_WAVES * int(level)) if kind == "closed" and level else DEFAULT_REQUESTS
    return wanted if trace.source.get("kind") == "synthetic" else min(wanted, len(trace))


def plan_runs(asked: Asked, load: Callable[[str, int | None], Trace]) -> list[RunSpec]:
    """The runs in the order in which they go; `load` gives so many rows of a workload, None all that it has.

    Without an arrival (an empty text) a run takes the workload's own.
    Repeat i has seed + i, equal across policies and arrivals, so that arms are paired. Within a repeat the order of
    the policies is shuffled (seeded), so that none always goes first.
    """
    gpus, policies, models = _names(asked)
    workloads = _once([canonical_workload(*options.split(text)) for text in asked.workloads])
    every_slots = list(dict.fromkeys(asked.slots or (asked.template.slots,)))
    if asked.template.engine != "tokenstep" and asked.template.token_budget < max(every_slots):
        raise UserError(
            f"--token-budget {asked.template.token_budget} is below --slots {max(every_slots)}: "
            "every running request needs a token a step (vLLM refuses it too); raise the budget or lower the slots"
        )
    lengths = asked.template.lengths
    engine = asked.template.engine
    if engine not in ("endpoint", "tokenstep"):
        check_used(policies, lengths)
    know = {"endpoint": lambda _, given: given, "tokenstep": known_offline}.get(engine, known_to)
    runs = []
    for gpu, (model, config) in zip(gpus, models, strict=True):
        template = _with_costs(asked, gpu, model, config)
        for workload in workloads:
            trace = load(workload, asked.requests)
            arrivals = [arrival_of(trace, text).canonical for text in asked.arrivals]
            requests = {arrival: asked.requests or requests_of(trace, arrival) for arrival in arrivals}
            for slots, repeat, arrival in itertools.product(every_slots, range(asked.repeat), arrivals):
                if asked.usual and repeat and arrival.startswith("trace"):
                    # A trace's own times are one sample: other requests of it come at other times.
                    continue
                seed = asked.template.seed + repeat
                order = list(policies)
                random.Random(seed).shuffle(order)  # noqa: S311 - an order, no secret
                runs += [
                    replace(
                        template,
                        gpu=gpu,
                        profile=asked.profiles[gpu].sha256 if gpu in asked.profiles else "",
                        model=model,
                        config=config,
                        workload=workload,
                        arrival=arrival,
                        policy=policy,
                        policy_sha256=sha256_of(policy, asked.policy_files),
                        requests=requests[arrival],
                        slots=slots,
                        seed=seed,
                        repeat=repeat,
                        lengths=know(policy, lengths),
                    )
                    for policy in order
                ]
    return runs


def _names(asked: Asked) -> tuple[list[str], list[str], list[tuple[str, dict[str, Any]]]]:
    """GPUs, policies and the model on each GPU by canonical names; as given where a server is not ours.

    Beside a model's name the keys of its config.json that decide, where it is none that the profiles have.
    """
    if asked.template.engine == "endpoint":
        gpus, policies = _once(labels_of(asked.gpus, asked.profiles)), _once(list(asked.policies))
        if len(gpus) > 1:
            raise UserError("--engine endpoint drives servers that run: give one --gpu to label them")
        return gpus, policies, [(asked.template.model, {})] * len(gpus)
    real = asked.template.engine == "vllm"
    policies = canonical_policies(asked.policies, asked.template.engine)
    if not real and STOCK in policies:
        raise UserError(
            f"policy {STOCK} is real vLLM untouched: it needs the GPU here (or --gpu cpu) and an environment "
            "(`bench engine install`); elsewhere v1 is the nearest"
        )
    if asked.template.engine != "simulated" and (pools := [one for one in policies if read_policy(one)[0] == POOLS]):
        raise UserError(
            f"policy {pools[0]} is prefill and decode on engines of their own, in virtual time: it goes with --engine "
            "simulated; of servers that run so give the router's address, --url"
        )
    if real and V0_ENGINE in policies:
        raise UserError(f"policy {V0_ENGINE} is another engine's host: it goes with --engine simulated or emulated")
    gpus = _once([_gpu_name(gpu, real) for gpu in asked.gpus])
    model = asked.template.model
    models = [(_model_name(gpu, model), {}) if real else model_on(gpu, model) for gpu in gpus]
    return labels_of(gpus, asked.profiles), policies, models


def _with_costs(asked: Asked, gpu: str, model: str, config: dict[str, Any]) -> RunSpec:
    """The template with the cost model that `auto` is for this pair, so that a spec means the same for good."""
    template = asked.template
    if template.engine not in ("simulated", "emulated"):
        return template
    profile = asked.profiles[gpu].path if gpu in asked.profiles else gpu
    pair = load_pair(profile, model, template.tp, config)
    auto = pair.chosen()
    return replace(
        template,
        cost_model=auto if template.cost_model == "auto" else template.cost_model,
        policy_costs=auto if template.policy_costs == "auto" else template.policy_costs,
    )


def _gpu_name(gpu: str, any_name: bool) -> str:
    """A GPU's name as the profiles have it; as it is given where that is a file, or they need not know it."""
    if gpu.endswith(ENDING):
        return gpu
    try:
        return load_gpu(gpu).name
    except UserError:
        if not any_name:
            raise
        return gpu


def _model_name(gpu: str, model: str) -> str:
    """A model's name on a GPU as the profiles have it; as it is given where they do not know it."""
    if os.path.isdir(model):
        return model
    try:
        return model_name(gpu, model)
    except UserError:
        return canonical_model(model)


def _once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))
