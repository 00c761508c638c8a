"""Files in the published layouts of the data sets, filled with seeded text: what the loaders are tested on.

The schemas are those of the data sets' pages on the Hugging Face hub (allenai/WildChat-1M, lmsys/lmsys-chat-1m,
AI-MO/NuminaMath-CoT, THUDM/LongBench, THUDM/LongBench-v2), as stored copies showed them in November 2026.
"""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

_VOCABULARY = (
    "the of and model server queue token prefill decode batch answer question why how where memory step rate time "
    "policy list code function value return for while number result example please explain write translate"
)
WORDS = _VOCABULARY.split()

Turns = list[dict[str, Any]]


def words(draw: random.Random, low: int, high: int) -> str:
    """A text of `low` to `high` words."""
    return " ".join(draw.choices(WORDS, k=draw.randint(low, high)))


def chat(draw: random.Random, pairs: int, high: int = 30) -> Turns:
    """`pairs` user turns, each with its answer."""
    return [{"role": role, "content": words(draw, 1, high)} for _ in range(pairs) for role in ("user", "assistant")]


def _moderation(flags: tuple[str, ...]) -> Any:
    import pyarrow as pa

    return pa.list_(
        pa.struct(
            [
                ("categories", pa.struct([(flag, pa.bool_()) for flag in flags])),
                ("category_scores", pa.struct([(flag, pa.float64()) for flag in flags])),
                ("flagged", pa.bool_()),
            ]
        )
    )


_FLAGS = ("harassment", "harassment/threatening", "hate", "self-harm", "sexual", "violence", "violence/graphic")


def wildchat_schema() -> Any:
    """WildChat-1M's: every turn with address, header, place, language and time."""
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    text = pa.string()
    turn = pa.struct(
        [
            ("content", text),
            ("country", text),
            ("hashed_ip", text),
            ("header", pa.struct([("accept-language", text), ("user-agent", text)])),
            ("language", text),
            ("redacted", pa.bool_()),
            ("role", text),
            ("state", text),
            ("timestamp", time),
            ("toxic", pa.bool_()),
            ("turn_identifier", pa.int64()),
        ]
    )
    return pa.schema(
        [
            ("conversation_hash", text),
            ("model", text),
            ("timestamp", time),
            ("conversation", pa.list_(turn)),
            ("turn", pa.int64()),
            ("language", text),
            ("openai_moderation", _moderation(_FLAGS)),
            ("detoxify_moderation", pa.list_(pa.struct([("toxicity", pa.float64()), ("insult", pa.float64())]))),
            ("toxic", pa.bool_()),
            ("redacted", pa.bool_()),
            ("state", text),
            ("country", text),
            ("hashed_ip", text),
            ("header", pa.struct([("accept-language", text), ("user-agent", text)])),
        ]
    )


def lmsys_schema() -> Any:
    """LMSYS-Chat-1M's."""
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        [
            ("conversation_id", text),
            ("model", text),
            ("conversation", pa.list_(pa.struct([("content", text), ("role", text)]))),
            ("turn", pa.int64()),
            ("language", text),
            ("openai_moderation", _moderation(_FLAGS)),
            ("redacted", pa.bool_()),
        ]
    )


def numinamath_schema() -> Any:
    """NuminaMath-CoT's."""
    import pyarrow as pa

    text = pa.string()
    messages = pa.list_(pa.struct([("content", text), ("role", text)]))
    return pa.schema([("source", text), ("problem", text), ("solution", text), ("messages", messages)])


def wildchat_row(number: int, turns: Turns | None) -> dict[str, Any]:
    """A row around a conversation; a user's turn has address and header, an answer has its time where it is given."""
    secret = {"hashed_ip": "f00d" * 16, "header": {"accept-language": "de", "user-agent": "Mozilla"}}
    whole = [{"language": "English", "toxic": False, **turn} for turn in turns or []]
    whole = [turn | secret if turn.get("role") == "user" else turn for turn in whole]
    return {
        "conversation_hash": f"{number:032x}",
        "model": "gpt-4-0314",
        "conversation": None if turns is None else whole,
        "turn": len(whole) // 2,
        "language": "English",
        "openai_moderation": [{"categories": {"hate": False}, "category_scores": {"hate": 0.1}, "flagged": False}],
        "toxic": False,
        **secret,
    }


def lmsys_row(number: int, turns: Turns | None) -> dict[str, Any]:
    """A row around a conversation."""
    return {
        "conversation_id": f"{number:032x}",
        "model": "vicuna-13b",
        "conversation": turns,
        "turn": len(turns or []) // 2,
        "language": "English",
        "openai_moderation": [{"categories": {"hate": False}, "category_scores": {"hate": 0.1}, "flagged": False}],
        "redacted": False,
    }


def numinamath_row(problem: str, solution: str) -> dict[str, Any]:
    """A problem with its solution, also as messages."""
    messages = [{"content": problem, "role": "user"}, {"content": solution, "role": "assistant"}]
    return {"source": "aops_forum", "problem": problem, "solution": solution, "messages": messages}


def write_parquet(path: Path, schema: Any, rows: Iterable[dict[str, Any]], group: int = 1000) -> Path:
    """The rows as parquet, a row group at a time, so that a million of them need no memory."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    held: list[dict[str, Any]] = []
    with ParquetWriter(path, schema) as writer:
        for row in rows:
            held.append(row)
            if len(held) == group:
                writer.write_table(pa.Table.from_pylist(held, schema))
                held = []
        writer.write_table(pa.Table.from_pylist(held, schema))
    return path


def write_shards(folder: Path, schema: Any, rows: Sequence[dict[str, Any]], shards: int) -> Path:
    """The rows as `data/train-00000-of-…`, the hub's way."""
    size = -(-len(rows) // shards)
    for i in range(shards):
        name = f"train-{i:05}-of-{shards:05}-abcdef0123456789.parquet"
        write_parquet(folder / "data" / name, schema, rows[i * size : (i + 1) * size])
    return folder


def longbench_v1_row(number: int, task: str, context: str, asked: str, answers: list[str]) -> dict[str, Any]:
    """A line of LongBench's task files."""
    return {
        "input": asked,
        "context": context,
        "answers": answers,
        "length": len(context.split()),
        "dataset": task,
        "language": "en",
        "all_classes": None,
        "_id": f"{number:048x}",
    }


def longbench_v2_row(number: int, context: str, asked: str, answer: str = "B") -> dict[str, Any]:
    """A record of LongBench v2's data.json."""
    return {
        "_id": f"{number:024x}",
        "domain": "Single-Document QA",
        "sub_domain": "Academic",
        "difficulty": "easy",
        "length": "short",
        "question": asked,
        **{f"choice_{letter}": f"choice {letter}" for letter in "ABCD"},
        "answer": answer,
        "context": context,
    }


def json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    """One object a line."""
    return b"".join(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n" for row in rows)


def write_longbench_zip(path: Path, tasks: dict[str, list[dict[str, Any]]]) -> Path:
    """LongBench's data.zip: data/TASK.jsonl."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for task, rows in tasks.items():
            archive.writestr(f"data/{task}.jsonl", json_lines(rows))
    return path


def lmsys_rows(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Conversations of one to four pairs, lengths about as published (a mean of 126 tokens a request)."""
    draw = random.Random(seed)
    for number in range(count):
        pairs = draw.choices((1, 2, 3, 4), (60, 20, 12, 8))[0]
        turns = [
            {"role": role, "content": words(draw, low, high)}
            for _ in range(pairs)
            for role, low, high in (("user", 2, 60), ("assistant", 10, 180))
        ]
        yield lmsys_row(number, turns)


def say(*turns: tuple[Any, Any]) -> Turns:
    """The turns of a conversation, each of a role and a content."""
    return [{"role": role, "content": content} for role, content in turns]


def size_bytes(text: str) -> int:
    """What a tokenizer that counts bytes makes of a text."""
    return len(text.encode())


def turn_bytes(turns: Turns, role: str) -> list[int]:
    """The lengths of the turns of a role, bytes."""
    return [size_bytes(turn["content"]) for turn in turns if turn["role"] == role]


def sharegpt_turns(*turns: tuple[str, Any]) -> list[dict[str, Any]]:
    """The turns of a conversation as ShareGPT's file has them."""
    return [{"from": role, "value": value} for role, value in turns]


# A small file of that form: an id twice, none at all, and a record that is no conversation.
SHAREGPT = [
    {
        "id": "x_0",
        "conversations": sharegpt_turns(("human", "hello"), ("gpt", "Hi there"), ("human", "ü"), ("gpt", "ok")),
    },
    {"id": "x_0", "conversations": sharegpt_turns(("human", "same id"), ("gpt", "a" * 700))},
    {"id": None, "conversations": sharegpt_turns(("human", "no id"), ("gpt", "<|im_end|>"))},
    {"conversations": "not a list"},
    {"id": "z", "conversations": sharegpt_turns(("human", "last"), ("gpt", "one"))},
]
