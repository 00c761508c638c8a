"""Models by name, config.json or hub: sizes that are the published ones, and what is refused with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import USER_ERRORS, UserError
from harness.core.host import Host, read_host
from harness.profiles.config_json import KEYS, read_config
from harness.profiles.kernels.shape import Experts
from harness.profiles.models import all_model_names, catalogued, find_model, read_model
from harness.profiles.pair import load_pair

# As the models' pages count them.
PARAMETERS = {
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-72B-Instruct": 72_706_203_648,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "google/gemma-7b": 8_537_680_896,
}
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def test_parameters_are_the_published_ones() -> None:
    for name, parameters in PARAMETERS.items():
        assert find_model(name)[0].parameters == parameters, name


def test_every_config_that_ships_names_its_source_and_is_known() -> None:
    for name, path in catalogued().items():
        assert json.loads(path.read_text())["_source"]
        model, shape = find_model(name)
        assert shape is not None
        assert (model.name, model.layers, model.kv_heads) == (name, shape.layers, shape.kv_heads)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-70B"),
        ("Qwen3-32B", "Qwen/Qwen3-32B"),
    ],
)
def test_models_by_any_of_their_names(said: str, name: str) -> None:
    assert find_model(said)[0].name == name


def test_a_config_by_its_path_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))
    for path in (folder, folder / "config.json"):
        name, config = read_model(str(path))
        model, shape = find_model(name, config)
        assert model.name == name == "my-tiny-llama"
        assert shape is not None
        assert (shape.layers, shape.head_size, shape.kv_heads) == (16, 64, 8)
        # 16 layers of 60,817,408 matrices, 33 norms of 2,048, one table of 128,256 x 2,048 that is tied.
        assert model.parameters == 16 * 60_817_408 + 33 * 2048 + 128_256 * 2048
        assert model.weights_bytes == 2 * model.parameters
        assert model.kv_bytes_per_token == 2 * 16 * 8 * 64 * 2
    pair = load_pair("l40s", name, 1, config)
    assert pair.label == "l40s / my-tiny-llama"
    assert pair.kv_tokens > 1_000_000


def test_weights_quantised_by_a_tool_of_its_own_are_said_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    model, shape = find_model(*read_model(str(tmp_path)))
    assert shape is not None
    assert shape.weights == "fp8"
    embeddings = 128_256 * 2048 + 33 * 2048
    assert model.weights_bytes == 16 * 60_817_408 + 2 * embeddings


def test_a_mixture_counts_the_layers_that_have_experts() -> None:
    config = TINY | {
        "architectures": ["Qwen2MoeForCausalLM"],
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
    }
    assert read_config("m", config, "m").shape.experts == Experts(60, 4, 1408, 7, 5632)
    assert find_model("Mixtral-8x7B-v0.1")[1].experts == Experts(8, 2, 14336, 32)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "the architecture 'MambaForCausalLM' is unknown: known are"),
        ({"architectures": None}, "no `architectures`"),
        ({"kv_lora_rank": 512}, "multi-head latent attention"),
        ({"sliding_window": 512}, "sliding-window attention"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window attention"),
        ({"quantization_config": {"quant_method": "awq"}}, "weights quantised by 'awq'"),
        ({"torch_dtype": "int8"}, "weights of type 'int8'"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": 0}, "hidden_size is 0: it must be a whole number"),
        ({"hidden_size": 2.5}, "hidden_size is 2.5"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"num_key_value_heads": 5}, "32 query heads do not divide over 5 KV heads"),
        ({"hidden_size": 2047}, "hidden_size 2047 does not divide over 32 heads"),
        ({"num_experts": 4, "num_experts_per_tok": 8}, "num_experts_per_tok is 8 of 4 experts"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ],
)
def test_a_config_that_no_cost_model_knows_is_refused_with_the_reason(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError) as error:
        read_config("m", TINY | change, "config.json")
    assert str(error.value).startswith("config.json: ")
    assert why in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [{"sliding_window": None}, {"sliding_window": 4096}, {"sliding_window": 512, "use_sliding_window": False}],
)
def test_a_window_that_cuts_nothing_is_none(change: dict[str, Any]) -> None:
    read_config("m", TINY | change, "config.json")


def test_files_that_are_no_config(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("[]")
    for name, why in (("a.json", "not JSON"), ("b.json", "it holds no object")):
        with pytest.raises(UserError, match=why):
            read_model(str(tmp_path / name))
    with pytest.raises(UserError, match=r"no/such/file\.json: no such file: name the config\.json of a model"):
        read_model("no/such/file.json")
    for read in (read_model, find_model):
        with pytest.raises(UserError, match=r"no model named 'Qwen3-9B'; did you mean Qwen3-8B\?"):
            read("Qwen3-9B")
    # Who only looks a pair up asks no hub.
    with pytest.raises(UserError, match="no model named 'some/model'"):
        load_pair("h200", "some/model")


def test_an_id_of_the_hub_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(USER_ERRORS, match=r"cannot load the config\.json of some/model .*: name a config\.json"):
        read_model("some/model")


def test_a_config_keeps_what_decides_and_gives_the_same_again() -> None:
    name, config = read_model("Qwen3-32B-FP8")
    assert (name, config) == ("Qwen/Qwen3-32B-FP8", {})
    values = json.loads(catalogued()[name].read_text()) | {"rope_theta": 1e6}
    kept = {key: values[key] for key in KEYS if values.get(key) is not None}
    assert "rope_theta" not in kept
    assert read_config("a", kept, "a").shape == find_model(name)[1]
    assert find_model(name, kept)[0].weights_bytes == find_model(name)[0].weights_bytes


@pytest.mark.parametrize(
    ("said", "host", "canonical"),
    [
        ("", Host(2.5e-3, 5e-6), ""),
        ("t0=2.5ms,h=5us", Host(2.5e-3, 5e-6), ""),
        ("t0=1ms", Host(1e-3, 5e-6), "t0=0.001,h=5e-06"),
        ("h=0", Host(2.5e-3, 0.0), "t0=0.0025,h=0"),
        ("t0=0.0005, h=20µs", Host(5e-4, 2e-5), "t0=0.0005,h=2e-05"),
    ],
)
def test_a_host_is_read_with_units_and_said_in_seconds(said: str, host: Host, canonical: str) -> None:
    assert read_host(said) == host
    assert host.canonical == canonical
    assert read_host(canonical) == host


@pytest.mark.parametrize(
    "said", ["t0", "t0=", "t0=1h", "t1=1ms", "t0=-1ms", "t0=2", "t0=1ms,t0=1ms", "t0=nan", "t0=1e999"]
)
def test_a_host_that_is_none(said: str) -> None:
    with pytest.raises(UserError, match=r"^--host .*: write t0=2\.5ms,h=5us"):
        read_host(said)


def test_the_hosts_time_is_no_part_of_linear_costs() -> None:
    assert load_pair("h200", "Qwen3-8B").cost("roofline", Host(1e-3, 0.0)).parameters()["host_s"] == 1e-3
    with pytest.raises(UserError, match="--host: linear step costs have the host's time within"):
        load_pair("h200", "Qwen3-8B").cost("linear", Host(1e-3, 0.0))


def test_policies_can_be_told_another_models_constants() -> None:
    pair = load_pair("h200", "Qwen3-8B")
    told = {kind: pair.policy_constants(230, 250, 14336, kind) for kind in ("linear", "kernels")}
    assert told["linear"] != told["kernels"]
    with pytest.raises(UserError, match="no measured step times"):
        load_pair("l40s", "Qwen3-8B").policy_constants(230, 250, 14336, "linear")


def test_gpus_that_share_a_model() -> None:
    one, two = load_pair("h200", "Qwen3-32B"), load_pair("h200", "Qwen3-32B", 2)
    assert two.label == "2 x h200 / Qwen3-32B"
    # Each holds half the weights and half of each token's KV heads.
    free = 0.9 * 141e9 - 32_762_123_264 - 3.5e9
    assert two.kv_tokens == int(free // (262_144 // 2)) // 16 * 16
    assert two.kv_tokens > 2 * one.kv_tokens
    # 4 KV heads over 8 GPUs: each has one whole.
    assert load_pair("h200", "Qwen3-30B-A3B", 4).kv_tokens > 0


@pytest.mark.parametrize(
    ("gpu", "model", "tp", "why"),
    [
        ("h200", "Qwen3-8B", 3, "--tp 3: 32 query heads do not divide by 3"),
        ("h200", "Qwen2.5-7B-Instruct", 8, "28 query heads do not divide by 8"),
        ("h200", "Qwen3-8B", 16, "8 GPUs are the most that a node has"),
        ("l40s", "Llama-3.1-70B", 1, r"does not fit: 141\.1 GB .*: 4 of these GPUs hold it \(--tp 4\)"),
        ("l40s", "Llama-3.1-70B", 2, r"^2 x l40s / Llama-3.1-70B: .* 70\.6 GB .*: 4 of these GPUs hold it"),
        ("a100", "Qwen3-32B", 1, None),
    ],
)
def test_what_so_many_gpus_cannot_hold(gpu: str, model: str, tp: int, why: str | None) -> None:
    if why is None:
        assert load_pair(gpu, model, tp).kv_tokens > 0
        return
    with pytest.raises(UserError, match=why):
        load_pair(gpu, model, tp)


def test_linear_and_fp8_are_of_what_they_were_measured_on() -> None:
    with pytest.raises(UserError, match="no measured step times"):
        load_pair("h200", "Qwen3-8B", 2).cost("linear")
    fp8 = load_pair("h200", "Qwen3-32B-FP8")
    with pytest.raises(UserError, match="the roofline is that of bf16 weights"):
        fp8.cost("roofline")
    whole = load_pair("h200", "Qwen3-32B")
    prompt = (8192, 8192**2 / 2, 0, 0, 0)
    assert fp8.cost("kernels").seconds(*prompt) < 0.8 * whole.cost("kernels").seconds(*prompt)


def test_the_models_that_ship_are_listed_once() -> None:
    names = all_model_names()
    assert len(names) == len(set(names)) >= 14
