"""Text prompts of an exact token count, for servers that take no token ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from workloads.core.blocks import Blocks
from workloads.core.errors import WorkloadError
from workloads.core.trace import Trace
from workloads.prompts.draws import Indexes
from workloads.prompts.ids import check_warmup
from workloads.prompts.parts import PromptPlan

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Plain words first; single letters for tokenizers that know no words (bytes, characters).
_FORMS = ((" ", re.compile(r"[Ġ▁]?([a-z]{3,12})")), ("", re.compile(r"([a-z])")))
_CANDIDATES = 8_192
_MIN_WORDS = 16
_ATTEMPTS = 8
_BATCH = 64


class Words:
    """Words that a tokenizer takes as one token each, at the start of a text and after another word.

    `add_special_tokens` counts what the server adds to a text of its own accord (a BOS, for `/v1/completions`).
    `words` are lower-case letters, ordered by token id, so they are the same in every process. Raises WorkloadError
    where the tokenizer has fewer than 16.
    """

    def __init__(self, tokenizer: Tokenizer, *, add_special_tokens: bool = True) -> None:
        if tokenizer.truncation or tokenizer.padding:
            # A tokenizer that cuts or pads cannot count; the caller's own stays as it is.
            tokenizer = type(tokenizer).from_str(tokenizer.to_str())
            tokenizer.no_truncation()
            tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._add = add_special_tokens
        self.special = self.counts([""])[0]
        surfaces = [surface for surface, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
        for separator, pattern in _FORMS:
            self.separator = separator
            self.words = self._single(pattern, surfaces)
            if len(self.words) >= _MIN_WORDS:
                return
        raise WorkloadError(
            f"no text of an exact token count: the tokenizer has {len(self.words)} plain words of one token, "
            f"{_MIN_WORDS} are needed: send token ids"
        )

    def _single(self, pattern: re.Pattern[str], surfaces: list[str]) -> list[str]:
        matches = (pattern.fullmatch(surface) for surface in surfaces)
        words = list(islice(dict.fromkeys(match[1] for match in matches if match), _CANDIDATES))
        alone = self.counts(words)
        thrice = self.counts([self.separator.join((word, word, word)) for word in words])
        return [
            word
            for word, once, three_times in zip(words, alone, thrice, strict=True)
            if once - self.special == 1 and three_times - self.special == 3
        ]

    def counts(self, texts: list[str]) -> list[int]:
        """The token count of each text, with the special tokens if they were asked for."""
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=self._add)
        return [len(encoding) for encoding in encoded]

    def join(self, head: str, indexes: Indexes) -> str:
        """The head, then the words of these indexes."""
        words = self.words
        tail = self.separator.join([words[index] for index in indexes.tolist()])
        return f"{head}{self.separator}{tail}" if head and tail else head + tail


class _TextFit:
    """One text on its way to `length` tokens: so many words are taken, counted, and corrected."""

    def __init__(self, what: str, length: int, take: int, make: Callable[[int], str]) -> None:
        self.what, self.length, self.take, self.make = what, length, take, make
        self.text = ""
        self.count = -1

    def propose(self) -> str:
        """The text of as many words as look right; WorkloadError where that is none."""
        if self.take < 1:
            raise WorkloadError(f"{self.what}: no text of {self.length} tokens: what comes before its words takes them")
        self.text = self.make(self.take)
        return self.text

    def counted(self, count: int) -> bool:
        """Hears how many tokens the text has, and whether that is what it is to have."""
        self.count = count
        self.take += self.length - count
        return count == self.length


class TextPrompts:
    """Text prompts for a trace: each encodes to exactly `prompt_tokens` tokens, checked by encoding it.

    What prompts share, and that they share nothing else, is as for `TokenPrompts`, with words in place of ids; the
    special tokens count, so a prompt's blocks start after them. Raises WorkloadError, one line, where a length cannot
    be made.
    """

    def __init__(
        self, trace: Trace, seed: int, words: Words, *, blocks: Blocks | None = None, sessions: bool = False
    ) -> None:
        self._plan = PromptPlan(trace, seed, len(words.words), blocks=blocks, sessions=sessions)
        self._words = words

    def text(self, row: int, after: str | None = None) -> str:
        """The row's prompt; `after` is the text it begins with instead of a planned history."""
        if after is not None:
            length = self._plan.length(row)
            return self._fit([self._of(row, after, length - self._words.counts([after])[0])])[0]
        return next(self.texts([row]))

    def texts(self, rows: Iterable[int]) -> Iterator[str]:
        """The prompts of many rows in their order; encoded together, which is faster on several cores."""
        wanted = iter(rows)
        while batch := list(islice(wanted, _BATCH)):
            yield from self._fit([self._planned(row) for row in batch])

    def warmup(self, number: int, tokens: int) -> str:
        """A warm-up prompt of `tokens` tokens whose first word begins no measured prompt."""
        check_warmup(number, tokens)

        def make(words: int) -> str:
            return self._words.join("", self._plan.draws.draw("warmup", number, words))

        return self._fit([_TextFit(f"warm-up {number}", tokens, tokens - self._words.special, make)])[0]

    def _of(self, row: int, head: str, take: int) -> _TextFit:
        plan = self._plan

        def make(words: int) -> str:
            return self._words.join(head, plan.own(row, words))

        return _TextFit(f"{plan.trace.name}, row {row}", plan.length(row), take, make)

    def _planned(self, row: int) -> _TextFit:
        plan, length = self._plan, self._plan.length(row)
        earlier = plan.before(row)
        if earlier is None:
            return self._of(row, "", length - self._words.special)
        answer = plan.answer(earlier)
        head = self._words.join(self._fit([self._planned(earlier)])[0], answer)
        return self._of(row, head, length - plan.length(earlier) - len(answer))

    def _fit(self, fits: list[_TextFit]) -> list[str]:
        open_fits = fits
        for _ in range(_ATTEMPTS):
            counts = self._words.counts([fit.propose() for fit in open_fits])
            open_fits = [fit for fit, count in zip(open_fits, counts, strict=True) if not fit.counted(count)]
            if not open_fits:
                return [fit.text for fit in fits]
        fit = open_fits[0]
        raise WorkloadError(
            f"{fit.what}: no text of {fit.length} tokens after {_ATTEMPTS} attempts (the last has {fit.count}): "
            "send token ids"
        )
