"""GPU and model profiles: what a (GPU, model) pair is known to cost, and how it is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.core.errors import UserError
from harness.core.host import Host
from harness.core.text import nearest
from harness.profiles.cost import CostModel
from harness.profiles.derived import prefill_line, step_costs
from harness.profiles.figures import Fit, Gpu, Model
from harness.profiles.files import gpu_names, known_gpu, load_gpu, load_model, model_names
from harness.profiles.kernels.build import build, build_once, find_kernels, law_status
from harness.profiles.kernels.folder import from_folder
from harness.profiles.kernels.model import Kernels
from harness.profiles.kernels.package import NoSuchTimesError
from harness.profiles.kernels.shape import Shape
from harness.profiles.kernels.systems import SYSTEMS
from harness.profiles.linear import Linear
from harness.profiles.memory import BLOCK, MEMORY_USED, OTHER_BYTES, how_many, kv_bytes, kv_capacity, why_not_over
from harness.profiles.models import all_model_names, find_model
from harness.profiles.names import full_name, measured_on
from harness.profiles.roofline import Roofline, derive
from policies.core import StepCosts

__all__ = [
    "Gpu",
    "Kernels",
    "Model",
    "Pair",
    "gpu_names",
    "load_gpu",
    "load_model",
    "load_pair",
    "model_names",
]

Basis = Literal["calibrated", "published", "derived"]
KINDS = ("auto", "linear", "roofline", "kernels")
HOST = Host()
MIXTURE = (
    "experts were measured with invented routing (power law): a mixture of experts is less sure than a dense model"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A model on a GPU, or on `tp` of them. `kv_tokens` is the KV capacity C in tokens, whole blocks of 16.

    `model` is None where a profile has measured step times of a model whose figures nobody gave; `shape` is None
    where no config.json of the model is known, which kernel times are looked up by.
    """

    gpu: Gpu
    model_name: str
    model: Model | None
    kv_tokens: int
    shape: Shape | None = None
    tp: int = 1

    @property
    def label(self) -> str:
        """`gpu / model`, short."""
        gpus = self.gpu.name if self.tp == 1 else f"{self.tp} x {self.gpu.name}"
        return f"{gpus} / {(self.model.name if self.model else self.model_name).rpartition('/')[2]}"

    @property
    def fit(self) -> Fit | None:
        """The measured constants, None where nobody measured this pair (all that were are of one GPU)."""
        return self.gpu.fits.get(self.model_name) if self.tp == 1 else None

    @property
    def basis(self) -> Basis:
        """How the pair's costs are known: calibrated, published by others, or derived from data sheets."""
        return self.fit.basis if self.fit else "derived"

    def degraded(self, kind: str = "auto") -> tuple[str, ...]:
        """Why a run on this pair, with this cost model, is worth less than its basis says."""
        chosen = self.chosen(kind)
        if chosen == "kernels":
            return (MIXTURE,) if self.model is not None and self.model.moe else ()
        return self.fit.degraded if self.fit and chosen == "linear" else ()

    def policy_notes(self, kind: str = "auto") -> tuple[str, ...]:
        """What to know about the constants that policies get; empty where there is nothing to say."""
        chosen = self.chosen(kind)
        if chosen == "linear" or self.refusal(kind if ":" in kind else chosen):
            return ()
        line = prefill_line(self._kernels(HOST, kind) if chosen == "kernels" else self._roofline(HOST))
        if line.free_alpha_s > 0:
            return ()
        return (
            f"the α_p derived for this pair would be {line.free_alpha_s * 1e3:.2f} ms (attention over long "
            f"prompts bends the line): held at the host's {line.alpha_s * 1e3:g} ms a step",
        )

    def chosen(self, kind: str = "auto") -> str:
        """The cost model that a kind means; `kernels:PATH` names tables of one's own.

        `auto` is linear where the user calibrated the pair. Else it is kernels for a dense model, or roofline. What
        others published as linear flatters policies that batch one phase at a time (docs/fidelity.md): it comes last,
        but for a mixture of experts.
        """
        name, _, path = kind.partition(":")
        if path and name == "kernels":
            return name
        if kind not in KINDS:
            raise UserError(f"no cost model named {kind!r}{nearest(kind, KINDS)} Use one of {', '.join(KINDS)}")
        if kind != "auto":
            return kind
        measured_first = (self.model is not None and self.model.moe) or self.basis == "calibrated"
        order = ("linear", "kernels") if measured_first else ("kernels", "roofline", "linear")
        return next((name for name in order if self.refusal(name) is None), "linear" if self.fit else "roofline")

    def cost(self, kind: str = "auto", host: Host = HOST) -> CostModel:
        """The step-cost model of a kind; `host` is the host's time, which linear has within its constants.

        The model's own `source` says how it is known: roofline is `derived` also on a measured pair. Linear
        is refused on a derived pair (a fit to the roofline has the roofline's errors and its own on top),
        roofline on a mixture of experts, kernels where the tables lack one. Raises UserError.
        """
        chosen = self.chosen(kind)
        if refusal := self.refusal(kind if ":" in kind else chosen):
            raise UserError(refusal)
        if chosen == "linear":
            if host != HOST:
                raise UserError(f"{self.label}: --host: linear step costs have the host's time within: leave it out")
            assert self.fit is not None
            return Linear.of(self.fit.costs, self.fit.basis)
        return self._kernels(host, kind) if chosen == "kernels" else self._roofline(host)

    def policy_constants(
        self, mu_l: float, mu_o: float, token_budget: int, kind: str = "auto", host: Host = HOST
    ) -> StepCosts:
        """The constants of model 1 that policies need: measured, or fitted to the chosen model for this workload.

        So a policy is told the truth of the world that it runs in. `mu_l`, `mu_o` mean prompt and output, tokens;
        `token_budget` B, tokens a step. Raises UserError.
        """
        chosen = self.chosen(kind)
        if refusal := self.refusal(kind if ":" in kind else chosen):
            raise UserError(refusal)
        if chosen == "linear":
            assert self.fit is not None
            return self.fit.costs
        cost = self._kernels(host, kind) if chosen == "kernels" else self._roofline(host)
        return step_costs(cost, mu_l, mu_o, token_budget, self.label)

    def describe(self, kind: str = "auto") -> str:
        """One line for people: the pair, how its costs are known, and which model tells them."""
        chosen = self.chosen(kind)
        if kind.startswith("kernels:"):
            return f"{self.label}: kernel times of {kind.partition(':')[2]}, composed to steps (kernels)"
        if chosen == "kernels":
            return f"{self.label}: kernel times measured by NVIDIA, composed to steps (kernels)"
        if self.fit and chosen == "linear":
            return f"{self.label}: {self.basis} step times (linear)"
        if self.model is not None and self.model.moe:
            return f"{self.label}: no calibration, so no step costs (a mixture of experts cannot be derived)"
        beta = "" if self.gpu.dense_bf16_tflops else " and a published β_p"
        return f"{self.label}: derived from data sheets{beta} (roofline), a prediction"

    def to_manifest(self) -> dict[str, Any]:
        """Everything that this pair rests on as JSON values: figures, sources, flags, reasons."""
        fit = self.fit
        gpu = {
            f.name: getattr(self.gpu, f.name)
            for f in dataclasses.fields(Gpu)
            if f.name not in ("fits", "kv_tokens", "prices")
        }
        # Prices are no part of what a run rests on.
        names = [field.name for field in dataclasses.fields(Model) if field.name != "prices"]
        figures = self.model and {name: getattr(self.model, name) for name in names}
        model = figures and figures | {"sources": dict(figures["sources"])}
        return {
            "gpu": {**gpu, "aliases": list(self.gpu.aliases), "sources": dict(self.gpu.sources)},
            "model": model or {"name": self.model_name},
            "tp": self.tp,
            "basis": self.basis,
            "kv_tokens": self.kv_tokens,
            "kv_source": "profile"
            if self.model_name in self.gpu.kv_tokens
            else f"({MEMORY_USED:g} memory - weights - {OTHER_BYTES / 1e9:g} GB) / KV bytes a token",
            "fit": fit
            and {
                **dataclasses.asdict(fit.costs),
                "mixed_form": fit.mixed_form,
                "sources": dict(fit.sources),
                "flags": list(fit.flags),
                "runs": list(fit.runs),
            },
            "degraded": list(self.degraded()),
            "policy_notes": list(self.policy_notes()),
            "description": self.describe(),
        }

    def refusal(self, kind: str) -> str | None:
        """Why this model cannot be had for this pair, in one line that says what to do; None where it can."""
        moe = self.model is not None and self.model.moe
        if kind == "linear":
            if self.fit:
                return None
            why = "no measured step times, so no linear cost model"
            remedy = "" if moe else "use roofline, or "
        elif kind.partition(":")[0] == "kernels":
            return self._no_kernels(own_tables(kind))
        elif self.shape is not None and self.shape.weights != "bfloat16":
            return self._no_roofline_of(self.shape.weights)
        elif moe:
            why = "a mixture of experts needs measured step times (derived ones are 28–55 % off)"
            if self.fit:
                return f"{self.label}: {why}: use linear"
            remedy = ""
        elif self.model is None or not self.gpu.has_sheet:
            # load_pair lets such a pair through only where it was measured.
            whose = "GPU" if self.model else "model" if self.gpu.has_sheet else "GPU and the model"
            return f"{self.label}: the profile has no figures of the {whose}, so no roofline: use linear"
        elif self.gpu.flops is None:
            why, remedy = "no dense bf16 peak, and no published β_p to infer one from", ""
        else:
            return None
        others = [name for name in gpu_names() if self.model_name in known_gpu(name).fits]
        if moe and others:
            remedy = f"take a GPU that has them ({', '.join(others)}), or "
        return f"{self.label}: {why}: {remedy}add them to a profile file (docs/adding-a-gpu.md)"

    def _no_roofline_of(self, weights: str) -> str:
        """Why weights of this type have no roofline, and what has them."""
        why = f"{self.label}: the roofline is that of bf16 weights, these are {weights}"
        lacking = self._no_kernels(None)
        if lacking is None:
            return f"{why}: use kernels"
        return f"{why}, and {lacking.removeprefix(f'{self.label}: ')}: take another GPU, or the model in bf16"

    @property
    def mixed_call(self) -> str:
        """How the cost of decodes beside prompts is known where kernels price the pair."""
        return law_status(SYSTEMS[self.gpu.name], str(self.gpu.attention))

    def _no_kernels(self, own: Path | None) -> str | None:
        """Why there are no kernel times of this pair, None where there are; `own` are tables of the user's."""
        if self.shape is None:
            return f"{self.label}: kernels are looked up by a model's config.json: name it with --model"
        if own is not None and own.is_dir():
            return None
        if not self.gpu.has_sheet:
            return f"{self.label}: the profile has no figures of the GPU, so no kernels: use linear"
        try:
            find_kernels(self.gpu.name, self.shape, self.tp)
        except NoSuchTimesError as error:
            return f"{self.label}: {error}"
        return None

    def _kernels(self, host: Host, kind: str = "kernels") -> Kernels:
        gpu, shape, own = self.gpu, self.shape, own_tables(kind)
        # What `_no_kernels` has looked at.
        assert shape is not None
        if own is not None and own.is_dir():
            return from_folder(own, shape.layers, host.step_s, host.decode_s)
        assert gpu.bandwidth_tb_s is not None
        assert gpu.attention is not None
        bandwidth = gpu.bandwidth_tb_s * 1e12
        asked = (gpu.name, shape, self.tp, bandwidth, gpu.attention, host.step_s, host.decode_s)
        return build_once(*asked) if own is None else build(*asked, own)

    def _roofline(self, host: Host) -> Roofline:
        gpu, model = self.gpu, self.model
        # What `refusal` has looked at.
        assert model is not None
        assert gpu.flops is not None
        assert gpu.bandwidth_tb_s is not None
        assert gpu.attention is not None
        assert gpu.attention_efficiency is not None
        return derive(
            bandwidth=gpu.bandwidth_tb_s * 1e12,
            flops=gpu.flops,
            attention=gpu.attention,
            attention_efficiency=gpu.attention_efficiency,
            parameters_per_token=model.parameters_per_token / self.tp,
            weights_read_bytes=model.weights_read_bytes / self.tp,
            kv_bytes_per_token=kv_bytes(model, self.tp),
            layers=model.layers,
            query_heads=model.query_heads // self.tp,
            kv_heads=max(1, model.kv_heads // self.tp),
            head_size=model.head_size,
            host_s=host.step_s,
            decode_s=host.decode_s,
        )


def own_tables(kind: str) -> Path | None:
    """The tables that `kernels:PATH` names: a folder of measured layers, or a file of measured attention calls."""
    path = kind.partition(":")[2]
    return Path(path) if path else None


def load_pair(gpu: str, model: str, tp: int = 1, config: Mapping[str, Any] | None = None) -> Pair:
    """The pair of a GPU (name, alias or profile file) and a model, on `tp` GPUs that share it.

    A model is one of the project's (its full id or the last part of it) or of the GPU's measured pairs, or has its
    `config` beside its name. Raises UserError for unknown names, faulty profiles, a model that so many GPUs cannot
    share or that does not fit their memory.
    """
    the_gpu = load_gpu(gpu)
    name = model if config else full_name(the_gpu, model)
    known = config or name not in the_gpu.fits or name in all_model_names()
    the_model, shape = find_model(name, config) if known else (None, None)
    if tp > 1 and (why := why_not_over(tp, the_model, shape)):
        raise UserError(f"{the_gpu.name} / {name}: --tp {tp}: {why}")
    kv_tokens = the_gpu.kv_tokens.get(name) if tp == 1 else None
    if kv_tokens is not None:
        pair = Pair(the_gpu, name, the_model, kv_tokens // BLOCK * BLOCK, shape)
        if pair.kv_tokens == 0:
            raise UserError(f"{pair.label}: kv_tokens is {kv_tokens} in the profile: a cache holds at least {BLOCK}")
        return pair
    if name in the_gpu.fits and (the_gpu.memory_gb is None or the_model is None):
        raise UserError(
            f"{gpu}: no kv_tokens of {name}, and no figures to derive them from: add `kv_tokens = {{ value = …, "
            f'source = "…" }}` to [pairs."{name}"]'
        )
    if the_gpu.memory_gb is None or the_model is None:
        raise UserError(
            f"{gpu}: no measured pair of {name} in it (it has {measured_on(the_gpu)}), and no data sheet to derive one "
            "from: name another --model, or calibrate this one (docs/calibrating.md)"
        )
    pair = Pair(the_gpu, name, the_model, kv_capacity(the_gpu, the_model, tp), shape, tp)
    if pair.kv_tokens == 0:
        weights = the_model.weights_bytes / tp
        raise UserError(
            f"{pair.label}: the model does not fit: {weights / 1e9:.1f} GB of weights and "
            f"{OTHER_BYTES / 1e9:g} GB besides leave no KV cache in {MEMORY_USED * the_gpu.memory_gb:.1f} GB "
            f"({MEMORY_USED:g} of {the_gpu.memory_gb:g} GB): {how_many(the_gpu, the_model, shape, tp)}"
        )
    return pair
