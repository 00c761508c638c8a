"""GPU and model profiles: what a (GPU, model) pair is known to cost, and how it is known."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from harness.errors import UserError
from harness.profile_files import Fit, Gpu, Model, gpu_names, known_gpu, load_gpu, load_model, model_names
from harness.profile_table import nearest
from harness.simulate.constants import prefill_line, step_costs
from harness.simulate.cost import CostModel
from harness.simulate.linear import Linear
from harness.simulate.roofline import Roofline, derive
from policies.threshold import StepCosts

__all__ = ["Gpu", "Model", "Pair", "gpu_names", "load_gpu", "load_model", "load_pair", "model_names"]

BLOCK = 16  # tokens a KV block
MEMORY_USED = 0.9  # of a GPU's memory, vLLM's gpu_memory_utilization
OTHER_BYTES = 3.5e9  # activations, CUDA graphs and the rest

Basis = Literal["calibrated", "published", "derived"]
KINDS = ("auto", "linear", "roofline")


@dataclass(frozen=True, slots=True)
class Pair:
    """A model on a GPU. `kv_tokens` is the KV capacity C in tokens, whole blocks of 16."""

    gpu: Gpu
    model: Model
    kv_tokens: int

    @property
    def label(self) -> str:
        """`gpu / model`, short."""
        return f"{self.gpu.name} / {self.model.name.rpartition('/')[2]}"

    @property
    def fit(self) -> Fit | None:
        """The measured constants, None where nobody measured this pair."""
        return self.gpu.fits.get(self.model.name)

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
        if self.model.moe:
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
        model = {f.name: getattr(self.model, f.name) for f in dataclasses.fields(Model) if f.name != "prices"}
        return {
            "gpu": {**gpu, "aliases": list(self.gpu.aliases), "sources": dict(self.gpu.sources)},
            "model": {**model, "sources": dict(self.model.sources)},
            "basis": self.basis,
            "kv_tokens": self.kv_tokens,
            "kv_source": "profile"
            if self.model.name in self.gpu.kv_tokens
            else f"({MEMORY_USED:g} memory - weights - {OTHER_BYTES / 1e9:g} GB) / KV bytes a token",
            "fit": fit
            and {
                **dataclasses.asdict(fit.costs),
                "mixed_form": fit.mixed_form,
                "sources": dict(fit.sources),
                "flags": list(fit.flags),
            },
            "degraded": list(self.degraded),
            "policy_notes": list(self.policy_notes),
            "description": self.describe(),
        }

    def _refusal(self, kind: str) -> str | None:
        """Why this model cannot be had for this pair, in one line that says what to do; None where it can."""
        if kind == "linear":
            if self.fit:
                return None
            why = "no measured step times, so no linear cost model"
            remedy = "" if self.model.moe else "use roofline, or "
        elif self.model.moe:
            why = "a mixture of experts needs measured step times (derived ones are 28–55 % off)"
            if self.fit:
                return f"{self.label}: {why}: use linear"
            remedy = ""
        elif self.gpu.flops is None:
            why, remedy = "no dense bf16 peak, and no published β_p to infer one from", ""
        else:
            return None
        others = [name for name in gpu_names() if self.model.name in known_gpu(name).fits]
        if self.model.moe and others:
            remedy = f"take a GPU that has them ({', '.join(others)}), or "
        return f"{self.label}: {why}: {remedy}add them to a profile file (docs/adding-a-gpu.md)"

    def _roofline(self) -> Roofline:
        gpu, model = self.gpu, self.model
        assert gpu.flops is not None
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
    the_gpu, the_model = load_gpu(gpu), load_model(model)
    said = the_gpu.kv_tokens.get(the_model.name)
    free = MEMORY_USED * the_gpu.memory_gb * 1e9 - the_model.weights_bytes - OTHER_BYTES
    tokens = said if said is not None else int(free // the_model.kv_bytes_per_token)
    pair = Pair(the_gpu, the_model, max(0, tokens) // BLOCK * BLOCK)
    if pair.kv_tokens == 0:
        raise UserError(
            f"{pair.label}: the model does not fit: {the_model.weights_bytes / 1e9:.1f} GB of weights and "
            f"{OTHER_BYTES / 1e9:g} GB besides leave no KV cache in {MEMORY_USED * the_gpu.memory_gb:.1f} GB "
            f"({MEMORY_USED:g} of {the_gpu.memory_gb:g} GB): use a larger GPU or a smaller model"
        )
    return pair
