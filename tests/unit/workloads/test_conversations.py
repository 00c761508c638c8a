import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.support import dataset_files as made
from workloads.core.trace import Trace


def put(path: Path, *talks: made.Turns | None) -> Path:
    return made.write_parquet(path, made.lmsys_schema(), [made.lmsys_row(i, talk) for i, talk in enumerate(talks)])


def test_every_row_of_lmsys_shards_is_counted_in_order(tmp_path: Path, load: Callable[..., Trace]) -> None:
    folder = tmp_path / "set"
    rows = list(made.lmsys_rows(2500, seed=1))
    made.write_shards(folder, made.lmsys_schema(), rows, 3)
    trace = load("lmsys", folder)
    talks = [row["conversation"] for row in rows]
    assert trace.prompt_tokens.tolist() == [n for talk in talks for n in made.turn_bytes(talk, "user")]
    assert trace.output_tokens.tolist() == [n for talk in talks for n in made.turn_bytes(talk, "assistant")]
    assert trace.session is not None
    assert trace.turn is not None
    assert trace.session.tolist() == [i for i, talk in enumerate(talks) for _ in range(len(talk) // 2)]
    assert trace.turn.tolist() == [t for talk in talks for t in range(len(talk) // 2)]
    source = trace.source
    assert source["kind"] == "real"
    assert source["data_set"] == "lmsys/lmsys-chat-1m"
    assert source["licence"] == "LMSYS-Chat-1M Dataset License Agreement"
    assert [name[:20] for name in source["files"]] == [f"train-0000{i}-of-00003"[:20] for i in range(3)]
    assert source["conversations_read"] == source["conversations_taken"] == 2500
    assert source["skipped"] == {}
    assert "notices" not in source
    assert json.loads(json.dumps(source)) == source
    again = load("lmsys", folder / "data" / "train-*.parquet")
    assert again.digest == trace.digest
    assert again.source == {**source, "workload": again.source["workload"]}


def test_the_same_rows_as_json_lines_and_as_an_array(tmp_path: Path, load: Callable[..., Trace]) -> None:
    rows = list(made.lmsys_rows(40, seed=2))
    expected = load("lmsys", made.write_parquet(tmp_path / "a.parquet", made.lmsys_schema(), rows)).digest
    lines = made.json_lines(rows)
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "crlf.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    for name in ("a.jsonl", "crlf.jsonl", "a.json"):
        assert load("lmsys", tmp_path / name).digest == expected, name


def test_what_cannot_be_a_request_is_counted_by_reason(tmp_path: Path, load: Callable[..., Trace]) -> None:
    trace = load(
        "lmsys",
        put(
            tmp_path / "x.parquet",
            made.say(("user", "ab"), ("assistant", "c")),
            None,
            [],
            made.say(("assistant", "first"), ("user", "q"), ("assistant", "a")),
            made.say(("system", "be brief"), ("user", "qq"), ("assistant", "aa")),
            made.say(("user", "q"), ("tool", "x"), ("assistant", "a")),
            made.say(
                ("user", ""),
                ("assistant", "a"),
                ("user", " \n"),
                ("assistant", "b"),
                ("user", None),
                ("assistant", "c"),
            ),
            made.say(("user", "q"), ("assistant", None), ("user", "last")),
            made.say((None, "q"), ("User", "odd case"), ("ASSISTANT", "yes")),
        ),
    )
    assert trace.prompt_tokens.tolist() == [2, 1, 2, 8]
    assert trace.output_tokens.tolist() == [1, 1, 2, 3]
    assert trace.session is not None
    assert trace.session.tolist() == [0, 3, 4, 8]
    assert trace.source["skipped"] == {
        "answer without a prompt": 2,
        "answer without text": 1,
        "empty conversation": 2,
        "empty prompt": 2,
        "prompt without an answer": 2,
        "prompt without text": 1,
        "turn of an unknown role": 2,
    }
    assert trace.source["conversations_read"] == 9
    assert trace.source["conversations_taken"] == 4


def test_lone_surrogates_and_stray_bytes_are_a_counted_skip(tmp_path: Path, load: Callable[..., Trace]) -> None:
    rows = [
        made.lmsys_row(0, made.say(("user", "a\ud83d"), ("assistant", "b"), ("user", "c"), ("assistant", "\udfff")))
    ]
    rows.append(made.lmsys_row(1, made.say(("user", "é"), ("assistant", "fine"))))
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = {"answer is not valid Unicode": 1, "prompt is not valid Unicode": 1}
    trace = load("lmsys", tmp_path / "s.jsonl")
    assert trace.source["skipped"] == expected
    assert trace.prompt_tokens.tolist() == [2]
    # In parquet: three bytes that say a surrogate, written as bytes under the name of text.
    turn = pa.struct([("content", pa.binary()), ("role", pa.binary())])
    raw = [
        [
            {"content": t["content"].encode("utf-8", "surrogatepass"), "role": t["role"].encode()}
            for t in row["conversation"]
        ]
        for row in rows
    ]
    column = pa.array(raw, pa.list_(turn))
    text = pa.struct([("content", pa.string()), ("role", pa.string())])
    fields = [column.values.field(i).view(pa.string()) for i in range(2)]
    column = pa.ListArray.from_arrays(column.offsets, pa.StructArray.from_arrays(fields, fields=list(text)))
    pa.parquet.write_table(pa.table({"conversation": column}), tmp_path / "s.parquet")
    trace = load("lmsys", tmp_path / "s.parquet")
    assert trace.source["skipped"] == expected
    assert trace.prompt_tokens.tolist() == [2]


def test_a_turn_of_ten_megabytes(tmp_path: Path, load: Callable[..., Trace]) -> None:
    # It counts words: a token for every byte would make this a test of the tokenizer's memory.
    by_words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))  # noqa: S106
    by_words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (tmp_path / "words").mkdir()
    by_words.save(str(tmp_path / "words" / "tokenizer.json"))
    path = put(tmp_path / "x.parquet", made.say(("user", ("w" * 999 + " ") * 10_000), ("assistant", "ok")))
    trace = load("lmsys", path, tokenizer=tmp_path / "words")
    assert trace.prompt_tokens.tolist() == [10_000]


def test_ids_that_occur_again_are_told_and_nothing_is_left_out(tmp_path: Path, load: Callable[..., Trace]) -> None:
    rows = [made.lmsys_row(number, made.say(("user", "q"), ("assistant", "a"))) for number in (1, 2, 1, 1)]
    trace = load("lmsys", made.write_parquet(tmp_path / "x.parquet", made.lmsys_schema(), rows))
    assert len(trace) == 4
    assert trace.source["ids_that_occur_again"] == 2


def test_numinamath_prompts_end_with_the_published_line(tmp_path: Path, load: Callable[..., Trace]) -> None:
    folder = tmp_path / "set"
    draw = random.Random(3)
    pairs = [(made.words(draw, 1, 9), "x" * n) for n in (799, 800, 3999, 5000, 12)]
    rows = [made.numinamath_row(*pair) for pair in pairs]
    made.write_shards(folder, made.numinamath_schema(), rows, 2)
    test = folder / "data" / "test-00000-of-00001.parquet"
    made.write_parquet(test, made.numinamath_schema(), [made.numinamath_row("not", "this")])
    trace = load("numinamath", folder)
    line = len("\n\nPlease think step by step.")
    assert trace.prompt_tokens.tolist() == [made.size_bytes(problem) + line for problem, _ in pairs[1:4]]
    assert trace.output_tokens.tolist() == [800, 3999, 4000]
    assert trace.source["skipped"] == {"output below 800 tokens": 2}
    assert trace.source["part"] == {"suffix": "\n\nPlease think step by step."}
    plain = load("numinamath", folder, step_by_step=False, min_output_tokens=1, output_cap=0)
    assert plain.prompt_tokens.tolist() == [made.size_bytes(problem) for problem, _ in pairs]
    assert plain.output_tokens.tolist() == [799, 800, 3999, 5000, 12]
    assert load("numinamath", folder, forced=4000).output_tokens.tolist() == [4000] * 3
    assert len(load("numinamath", folder, conversations=2, min_output_tokens=1)) == 2
