"""Everything that decides a run, in one frozen value with one canonical form."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

# The version of run.json and summary.json that is written, and the latest that is read.
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One run: what is served (gpu, model, engine), how (policy, slots, budget) and what for (workload, arrival).

    `policy` and `workload` are canonical spec strings (`eb:k=32`); `arrival` is the canonical arrival
    string (`closed:concurrency=2048`, `poisson:rate=20.0`). `slots` and `token_budget` are N and B;
    `kv_tokens` is C, None where the profile decides. `repeat` counts from 0 and `seed` is already the
    repeat's own (first seed + repeat). `max_duration_s` ends sending. `slo` maps a latency
    metric to its limit in seconds; `alpha` (tokens) is what gaps are held against, None where the policy's own
    is: both decide what is reported, not what runs. `client` says how a server is driven (api, prompts,
    time-outs); it is empty where there is no client.
    With `sessions` a conversation's next turn is due `think_s` after its last answer. `prefix_caching` is the share of
    prompt tokens declared to hit the prefix cache (0.0: none was declared), None where the cache is off.
    `lengths` is what the scheduler knows of output lengths, canonical (`none`, `oracle`, `noisy:sigma=0.3`);
    `none` of a policy of ours that would not look at it.
    Of an engine that bench starts, `engine_args` are the extra flags.
    `gpu` is a name: of a profile in a file of the user's own its label, and `profile` is then that file's sha256 (hex).
    `tp` GPUs share the model (tensor parallelism). Of a model that is none of the project's, `config` has the keys of
    its config.json that decide. `host` is the host's time, canonical (`t0=0.001,h=5e-06`), empty for the default; where
    policies are told the step costs of another cost model than the run's, `policy_costs` names it.
    A policy in a user's file goes by its class and the first digits of the file's sha256 (`Mine@3f2a9c1b04de:k=8`);
    `policy_sha256` is all of that (hex), empty for a policy of the catalog.
    `replicas` engines serve together, each on `tp` GPUs with slots, budget and KV cache of its own; `router` is the
    rule by which each request goes to one of them, empty where there is one.
    """

    gpu: str
    model: str
    policy: str
    workload: str
    engine: str = "simulated"
    arrival: str = "closed:concurrency=2048"
    requests: int = 4000
    slots: int = 1024
    token_budget: int = 14336
    seed: int = 0
    repeat: int = 0
    block_size: int = 16
    kv_tokens: int | None = None
    max_model_len: int = 40960
    watermark: float = 0.0
    cost_model: str = "auto"
    max_duration_s: float | None = None
    slo: dict[str, float] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    alpha: float | None = None
    lengths: str = "none"
    engine_args: str = ""
    sessions: bool = False
    think_s: float = 0.0
    prefix_caching: float | None = None
    profile: str = ""
    tp: int = 1
    config: dict[str, Any] = field(default_factory=dict)
    host: str = ""
    policy_costs: str = ""
    policy_sha256: str = ""
    replicas: int = 1
    router: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON values, keys in the order of the fields."""
        values = ((name, getattr(self, name)) for name in _FIELDS)
        return {name: copy.deepcopy(value) if isinstance(value, dict) else value for name, value in values}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """The spec that `to_dict` wrote; unknown keys are an error of the caller."""
        client = values.get("client")
        if isinstance(client, dict) and "sessions" in client and "sessions" not in values:
            # Older runs over HTTP have both among the client's settings.
            client = dict(client)
            values = {**values, "client": client}
            values.update((name, client.pop(name)) for name in ("sessions", "think_s") if name in client)
        return cls(**values)

    @property
    def gpus(self) -> int:
        """How many GPUs serve the run: `tp` of each replica."""
        return self.tp * self.replicas

    @property
    def label(self) -> str:
        """The policy, and what it knew of output lengths: `ljf [oracle lengths]`."""
        return self.policy if self.lengths == "none" else f"{self.policy} [{self.lengths} lengths]"

    @property
    def canonical(self) -> str:
        """Canonical JSON: sorted keys, no spaces, so that equal specs are equal bytes."""
        # Not by `to_dict`, whose copies would be most of the time of a grid of many cells.
        values = {name: getattr(self, name) for name in _FIELDS}
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """sha256 (hex) of the canonical JSON."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()


_FIELDS = tuple(field.name for field in dataclasses.fields(RunSpec))
