"""GPU and model profiles: what a (GPU, model) pair is known to cost, and how it is known."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from harness.core.errors import UserError
from harness.core.text import nearest
from harness.profiles.cost import CostModel
from harness.profiles.derived import prefill_line, step_costs
from harness.profiles.files import Fit, Gpu, Model, gpu_names, known_gpu, load_gpu, load_model, model_names, spelled_as
from harness.profiles.linear import Linear
from harness.profiles.roofline import Roofline, derive
from policies.core import StepCosts

__all__ = ["Gpu", "Model", "Pair", "gpu_names", "load_gpu", "load_model", "load_pair", "model_name", "model_names"]

BLOCK = 16  # tokens a KV block
MEMORY_USED = 0.9  # of a GPU's memory, vLLM's gpu_memory_utilization
OTHER_BYTES = 3.5e9  # activations, CUDA graphs and the rest

Basis = Literal["calibrated", "published", "derived"]
KINDS = ("auto", "linear", "roofline")


@dataclass(frozen=True, slots=True)
class Pair:
    """A model on a GPU. `kv_tokens` is the KV capacity C in tokens, whole blocks of 16.

    `model` is None where a profile has measured step times of a model whose figures nobody gave.
    """

    gpu: Gpu
    model_name: str
    model: Model | None
    kv_tokens: int

    @property
    def label(self) -> str:
        """`gpu / model`, short."""
        return f"{self.gpu.name} / {self.model_name.rpartition('/')[2]}"

    @property
    def fit(self) -> Fit | None:
        """The measured constants, None where nobody measured this pair."""
        return self.gpu.fits.get(self.model_name)

    @property
    def basis(self) -> Basis:
        """How the pair's costs are known: calibrated, published by others, or derived from data sheets."""
        return self.fit.basis if self.fit else "derived"

    @property
    def degraded(self) -> tuple[str, ...]:
        """Why a simulated run on this pair is worth less than its basis says."""
        return self.fit.degraded if self.fit else ()

    @property
    def policy_notes(self) -> tuple[str, ...]:
        """What to know about the constants that policies get; empty where there is nothing to say."""
        if self.fit or self._refusal("roofline"):
            return ()
        line = prefill_line(self._roofline())
        if line.free_alpha_s > 0:
            return ()
        return (
            f"the α_p derived for this pair would be {line.free_alpha_s * 1e3:.2f} ms (attention over long "
            f"prompts bends the line): held at the host's {line.alpha_s * 1e3:g} ms a step",
        )

    def cost(self, kind: str = "auto") -> CostModel:
        """The step-cost model: `auto` is linear where the pair was measured and roofline where it was not.

        The model's own `source` says how it is known: roofline is `derived` also on a measured pair. Linear
        is refused on a derived pair (a fit to the roofline has the roofline's errors and its own on top),
        roofline on a mixture of experts. Raises UserError.
        """
        if kind not in KINDS:
            raise UserError(f"no cost model named {kind!r}{nearest(kind, KINDS)} Use one of {', '.join(KINDS)}")
        chosen = kind if kind != "auto" else "linear" if self.fit else "roofline"
        if refusal := self._refusal(chosen):
            raise UserError(refusal)
        if chosen == "linear":
            assert self.fit is not None
            return Linear.of(self.fit.costs, self.fit.basis)
        return self._roofline()

    def policy_constants(self, mu_l: float, mu_o: float, token_budget: int) -> StepCosts:
        """The constants of model 1 that policies need: measured, or fitted to the roofline for this workload.

        `mu_l`, `mu_o` mean prompt and output, tokens; `token_budget` B, tokens a step. Raises UserError.
        """
        if self.fit:
            return self.fit.costs
        if refusal := self._refusal("roofline"):
            raise UserError(refusal)
        return step_costs(self._roofline(), mu_l, mu_o, token_budget, self.label)

    def describe(self, kind: str = "auto") -> str:
        """One line for people: the pair, how its costs are known, and which model tells them."""
        if self.fit and kind != "roofline":
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
        told = [f.name for f in dataclasses.fields(Model) if f.name != "prices"]
        figures = self.model and {name: getattr(self.model, name) for name in told}
        model = figures and figures | {"sources": dict(figures["sources"])}
        return {
            "gpu": {**gpu, "aliases": list(self.gpu.aliases), "sources": dict(self.gpu.sources)},
            "model": model or {"name": self.model_name},
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
            "degraded": list(self.degraded),
            "policy_notes": list(self.policy_notes),
            "description": self.describe(),
        }

    def _refusal(self, kind: str) -> str | None:
        """Why this model cannot be had for this pair, in one line that says what to do; None where it can."""
        moe = self.model is not None and self.model.moe
        if kind == "linear":
            if self.fit:
                return None
            why = "no measured step times, so no linear cost model"
            remedy = "" if moe else "use roofline, or "
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

    def _roofline(self) -> Roofline:
        gpu, model = self.gpu, self.model
        # What `_refusal` has looked at.
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
            parameters_per_token=model.parameters_per_token,
            weights_read_bytes=model.weights_read_bytes,
            kv_bytes_per_token=model.kv_bytes_per_token,
            layers=model.layers,
            query_heads=model.query_heads,
            kv_heads=model.kv_heads,
            head_size=model.head_size,
        )


def load_pair(gpu: str, model: str) -> Pair:
    """The pair of a GPU (name, alias or profile file) and a model (full id or its last part).

    Raises UserError for unknown names, faulty profiles and a model that does not fit the GPU's memory.
    """
    the_gpu = load_gpu(gpu)
    name = _model_on(the_gpu, model)
    the_model = load_model(name) if name in model_names() else None
    said = the_gpu.kv_tokens.get(name)
    if said is not None:
        pair = Pair(the_gpu, name, the_model, said // BLOCK * BLOCK)
        if pair.kv_tokens == 0:
            raise UserError(f"{pair.label}: kv_tokens is {said} in the profile: a cache holds at least {BLOCK}")
        return pair
    if name in the_gpu.fits and (the_gpu.memory_gb is None or the_model is None):
        raise UserError(
            f"{gpu}: no kv_tokens of {name}, and no figures to derive them from: add `kv_tokens = {{ value = …, "
            f'source = "…" }}` to [pairs."{name}"]'
        )
    if the_gpu.memory_gb is None or the_model is None:
        raise UserError(
            f"{gpu}: no measured pair of {name} in it (it has {_measured(the_gpu)}), and no data sheet to derive one "
            "from: name another --model, or calibrate this one (docs/calibrating.md)"
        )
    free = MEMORY_USED * the_gpu.memory_gb * 1e9 - the_model.weights_bytes - OTHER_BYTES
    pair = Pair(the_gpu, name, the_model, max(0, int(free // the_model.kv_bytes_per_token)) // BLOCK * BLOCK)
    if pair.kv_tokens == 0:
        raise UserError(
            f"{pair.label}: the model does not fit: {the_model.weights_bytes / 1e9:.1f} GB of weights and "
            f"{OTHER_BYTES / 1e9:g} GB besides leave no KV cache in {MEMORY_USED * the_gpu.memory_gb:.1f} GB "
            f"({MEMORY_USED:g} of {the_gpu.memory_gb:g} GB): use a larger GPU or a smaller model"
        )
    return pair


def model_name(gpu: str, model: str) -> str:
    """A model's full name on a GPU: of the project's models, or of the GPU's measured pairs. Raises UserError."""
    return _model_on(load_gpu(gpu), model)


def _model_on(gpu: Gpu, model: str) -> str:
    if name := spelled_as(model, (*gpu.fits, *model_names())):
        return name
    if gpu.fits and not gpu.has_sheet:
        raise UserError(f"{gpu.name}: no measured pair of {model!r}; it has {_measured(gpu)}: name one with --model")
    return load_model(model).name


def _measured(gpu: Gpu) -> str:
    return ", ".join(gpu.fits) or "none"
