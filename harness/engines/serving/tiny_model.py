"""A small random Qwen3 model with a tokenizer of its own: what real vLLM serves on a CPU in about a minute.

There are no weights in it: `--load-format dummy` draws them when the engine starts.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from harness.core.errors import UserError

VOCABULARY = 2048
FLAGS = "--load-format dummy --dtype float32 --enforce-eager"

_END = "<|endoftext|>"
_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "max_position_embeddings": 40_960,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "use_cache": True,
    "torch_dtype": "float32",
    "vocab_size": VOCABULARY,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def make_tiny_model(directory: Path) -> bool:
    """Write the model's files; whether there was anything to write.

    UserError where the directory holds something else: nothing of another's is written over.
    """
    files = {name: json.dumps(value, indent=1) + "\n" for name, value in _settings().items()}
    files["tokenizer.json"] = _tokenizer()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        present = {path.name: path.read_text("utf-8") for path in directory.iterdir() if path.is_file()}
        others = sorted(name for name in present if present[name] != files.get(name))
        if others:
            raise UserError(f"{directory}: holds {others[0]} of something else: name a new or an empty directory")
        for name in files.keys() - present.keys():
            (directory / name).write_text(files[name], "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "files of something else are there"
        raise UserError(f"{directory}: cannot make a model there ({why}): name another directory") from None
    return bool(files.keys() - present.keys())


def _settings() -> dict[str, dict[str, object]]:
    return {
        "config.json": dict(_CONFIG),
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 0},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": _END,
            "model_max_length": _CONFIG["max_position_embeddings"],
            "chat_template": "{% for message in messages %}{{ message['content'] }}\n{% endfor %}",
        },
    }


def _tokenizer() -> str:
    """tokenizer.json of a byte-level BPE with 2,048 entries, trained on words of seeded syllables."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    draw = random.Random(0)  # noqa: S311 - words, no secret
    syllables = [first + vowel for first in "bdfghjklmnprstvwz" for vowel in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(3000)]
    text = [" ".join(draw.choices(words, k=12)) for _ in range(2000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY, "a smaller vocabulary would leave ids without a token"
    return str(tokenizer.to_str(pretty=True)) + "\n"
