"""The matrix of GPUs and models: where kernel tables are thin, and what cannot be had."""

from __future__ import annotations

import pytest

from harness.profiles.coverage import coverage, largest_gap
from harness.profiles.kernels.package import installed


def test_the_largest_gap_is_the_largest_factor_that_a_note_names() -> None:
    notes = [
        "torch.nn.functional.linear, columns between 16384 and 51200",
        "vllm_flash_attn_fa3, 16 KV heads as 16 times the requests of 1",
        "torch.nn.functional.linear, 151936 columns as 2.32 times 65536",
        "vllm_flash_attn_fa3",
    ]
    gap = largest_gap(notes)
    assert gap is not None
    assert (gap.factor, gap.what) == (16, "16 KV heads")
    gap = largest_gap([notes[0], notes[2]])
    assert gap is not None
    assert (gap.factor, gap.what) == (3.125, "columns between 16,384 and 51,200")
    assert largest_gap(notes[3:]) is None


@pytest.mark.parametrize(
    ("gpu", "model", "tp", "models"),
    [
        ("h200", "Qwen/Qwen3-8B", 1, {"linear": "published", "roofline": "derived", "kernels": "measured kernels"}),
        ("l40s", "meta-llama/Llama-3.1-70B", 4, {"roofline": "derived", "kernels": "measured kernels"}),
        ("h100", "Qwen/Qwen3-30B-A3B", 1, {"kernels": "measured kernels"}),
        ("rtxpro6000", "Qwen/Qwen3-32B-FP8", 1, {}),
    ],
)
def test_what_prices_a_pair_on_the_fewest_gpus_that_hold_it(
    gpu: str, model: str, tp: int, models: dict[str, str]
) -> None:
    known = coverage(gpu, model)
    assert known.tp == tp
    assert known.cost_models == models
    assert (known.auto in models) == (known.why_not is None)
    assert (known.mixed_call is None) == ("kernels" not in models)


def test_why_a_pair_has_no_kernel_times() -> None:
    known = coverage("a100", "google/gemma-7b")
    assert (known.auto, known.why_not) == ("roofline", None)
    why = known.no_kernels
    assert why is not None
    if installed():
        assert why == "a100 / gemma-7b: no attention over heads of 256 with a bfloat16 cache was measured on this GPU"
        assert coverage("h200", "google/gemma-7b").no_kernels is None
    else:
        # What comes with the project has no heads of 256; whether the package has any is not known here.
        assert why.startswith("a100 / gemma-7b: the kernel times that come with the project lack its prefill ")
        assert why.endswith("`pip install 'schedbench[kernels]'` has all that were measured")
    nothing = coverage("a100", "Qwen/Qwen3-32B-FP8")
    assert nothing.why_not is not None
    # Neither sends the user to the other.
    assert nothing.why_not.endswith(": take another GPU, or the model in bf16")
    assert "--cost-model kernels" not in nothing.why_not
