"""What `bench run` can be told, each with what holds where nothing is said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `bench run`, by the names of the command line; None where a default depends on the rest.

    `gpus` and `policies` may hold several names in one text, apart by commas. `token_budget` and `slots` are B and N.
    `arrival`, `rate` (requests/s) and `concurrency` say together how requests come. Names that end in `_s` are
    seconds; `alpha` and `kv_tokens` are tokens. Those from `url` on belong to engines that drive or start a server.
    """

    gpus: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    model: str | None = None
    engine: str = "auto"
    concurrency: int | None = None
    rate: float | None = None
    arrival: str | None = None
    requests: int | None = None
    slots: int = 1024
    token_budget: int = 14336
    kv_tokens: int | None = None
    block_size: int | None = None
    max_model_len: int = 40960
    watermark: float = 0.0
    prefix_caching: float | None = None
    cost_model: str = "auto"
    repeat: int = 1
    seed: int = 0
    slo: str | None = None
    alpha: float | None = None
    max_duration_s: float | None = None
    lengths: str = "none"
    sessions: bool = False
    think_s: float = 0.0
    url: str | None = None
    api: str = "completions"
    prompts: str = "ids"
    tokenizer: str = ""
    vocabulary: int | None = None
    key_env: str | None = None
    ca_file: str | None = None
    ignore_eos: bool = True
    timeout_s: float = 3600.0
    first_token_timeout_s: float | None = None
    retries_429: int = 0
    ready_timeout_s: float | None = None
    warmup: int = 4
    processes: int = 1
    engine_python: str | None = None
    engine_args: str = ""

    @property
    def gpu_names(self) -> list[str]:
        """The GPUs named, each once, in the order given."""
        return list(dict.fromkeys(gpu for text in self.gpus for gpu in text.split(",")))
