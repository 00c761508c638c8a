"""Small tokenizers whose counts can be worked out by hand."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors

from workloads.text import qwen_vocabulary

# As chat models have it: a turn is opened, named and closed, and the model's is opened at the end.
CHAT = """{{ bos_token }}
{%- for message in messages %}
    {%- if message.role not in ["system", "user", "assistant"] %}
        {{- raise_exception("no role " + message.role) }}
    {%- endif %}
    {%- if message.content == "skip me" %}
        {%- continue %}
    {%- endif %}
{{- "<|" + message.role + "|>" + message.content | trim + eos_token }}
{% endfor %}
{%- if add_generation_prompt %}
{{- "<|assistant|>" }}
{%- endif %}"""
EOS = "<|end|>"
ROLES = ["<|user|>", "<|assistant|>", "<|system|>"]


def write_bytes_tokenizer(path: Path) -> Path:
    """A tokenizer that counts bytes: a vocabulary of the 256 bytes and no merge."""
    lines = [base64.b64encode(bytes([byte])) + f" {byte}".encode() for byte in range(256)]
    path.write_bytes(qwen_vocabulary.convert(b"\n".join(lines)))
    return path


def write_model(folder: Path, template: Any, **config: Any) -> Path:
    """A tokenizer of words and marks that puts <s> before a text of its own accord, and a chat template beside it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<s>", EOS, *ROLES]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*alphabet, *special])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", len(alphabet))])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {"bos_token": "<s>", "eos_token": {"content": EOS, "special": True}, "chat_template": template, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder
