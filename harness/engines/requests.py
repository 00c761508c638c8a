"""The requests of a stream as they go over HTTP: each with its prompt, its body and when it is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.drive.bodies import chat_body, completion_body, counting_fields, hint_fields
from harness.drive.plan import Planned
from harness.engines.client import Client
from workloads.catalog import dataset_texts
from workloads.core.errors import WorkloadError
from workloads.core.sessions import turns_of
from workloads.core.stream import Stream
from workloads.lengths.hints import hints_of
from workloads.prompts.dataset import DatasetPrompts
from workloads.prompts.ids import TokenPrompts, safe_ids
from workloads.prompts.text import TextPrompts, Words
from workloads.text.tokenizer import load_tokenizer

# Where nobody says how large the vocabulary is: every model in use has at least this many tokens.
ASSUMED_VOCABULARY = 32_000
# Of each request of the warm-up, tokens.
WARMUP_PROMPT, WARMUP_OUTPUT = 64, 16


class StreamRequests:
    """Makes the requests of one run; raises UserError where the prompts asked for cannot be had.

    `extra` is what every body carries besides, `counted` how the server is asked to tell how many tokens an event holds
    (see `openai_stream`; it may be set until `planned` begins). `ask_vocabulary` is called where the vocabulary's size
    is not known otherwise. `notes` say what was put in another's place, `hints` how many output
    tokens the scheduler is told to expect of each request (None: nothing).
    """

    def __init__(
        self,
        spec: RunSpec,
        stream: Stream,
        client: Client,
        extra: Mapping[str, Any],
        ask_vocabulary: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.notes: list[str] = []
        self.counted: frozenset[str] = frozenset()
        self._ask_vocabulary = ask_vocabulary
        self.hints = hints_of(spec.lengths, stream.trace, spec.seed)
        self._spec = spec
        self._stream = stream
        self._client = client
        self._extra = dict(extra)
        self._prompts = self._make_prompts()

    def planned(self) -> Iterator[Planned]:
        """Every request of the stream with its body; a later turn of a session waits for the answer before it."""
        trace, due_ns = self._stream.trace, self._stream.due_ns
        prompt_tokens, output_tokens = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
        sessions = turns = None
        later: set[int] = set()
        think_ns = self._stream.think_ns
        if think_ns is not None and trace.session is not None and trace.turn is not None:
            sessions, turns = trace.session.tolist(), trace.turn.tolist()
            later.update(turns_of(trace).after.values())
        for row, prompt in enumerate(self.prompts()):
            yield Planned(
                id=trace.id_of(row),
                row=row,
                due_ns=None if due_ns is None or row in later else int(due_ns[row]),
                body=self._body(prompt, output_tokens[row], row, self._hint(row)),
                prompt_tokens=prompt_tokens[row],
                expected_output_tokens=output_tokens[row],
                session=None if sessions is None else sessions[row],
                turn=None if turns is None else turns[row],
                think_ns=think_ns or 0,
            )

    def warmup(self, count: int) -> list[Planned]:
        """So many requests of their own, none of the stream."""
        bodies = [self._body(self._prompts.warmup(i, WARMUP_PROMPT), WARMUP_OUTPUT, i) for i in range(count)]
        return [Planned(f"warmup-{i}", i, None, body, WARMUP_PROMPT, WARMUP_OUTPUT) for i, body in enumerate(bodies)]

    def prompts(self) -> Iterator[Any]:
        """The prompt of every request, in the stream's order: token ids, a text, or a chat's messages."""
        rows = range(len(self._stream.trace))
        if isinstance(self._prompts, TokenPrompts):
            return map(self._prompts.ids, rows)
        return self._prompts.texts(rows)

    def _make_prompts(self) -> TokenPrompts | TextPrompts | DatasetPrompts:
        if self._client.prompts == "dataset":
            return self._dataset_prompts()
        if self._client.prompts == "text":
            return self._text_prompts()
        return self._token_prompts()

    def _dataset_prompts(self) -> DatasetPrompts:
        trace, chat = self._stream.trace, self._client.api == "chat"
        if "template" in trace.source:
            self.notes.append("prompts carry the data set's own earlier answers, not the model's")
            if chat:
                self.notes.append(
                    "chat: the server renders the messages by its own template; lengths are by the trace's"
                )
        elif self._spec.sessions:
            raise UserError(
                "--sessions: --prompts dataset sends each pair alone: leave out --sessions, take wildchat or lmsys "
                "with template=true (the history by the model's chat template), or send --prompts ids or text"
            )
        return DatasetPrompts(trace, dataset_texts(self._spec.workload, self._spec.model, chat))

    def _text_prompts(self) -> TextPrompts:
        trace, chat = self._stream.trace, self._client.api == "chat"
        try:
            tokenizer, _ = load_tokenizer(self._client.tokenizer, self._spec.model)
        except WorkloadError:
            raise UserError(f"text prompts need a tokenizer to count with: {self._no_tokenizer()}") from None
        if chat:
            self.notes.append("chat: the template's own tokens come on top of each prompt's length")
        # `/v1/completions` adds the tokenizer's own special tokens to a text, a chat template brings its own.
        words = Words(tokenizer, add_special_tokens=not chat)
        return TextPrompts(trace, self._spec.seed, words, blocks=trace.blocks, sessions=self._spec.sessions)

    def _token_prompts(self) -> TokenPrompts:
        trace, ids = self._stream.trace, safe_ids(self._vocabulary_size())
        return TokenPrompts(trace, self._spec.seed, ids, blocks=trace.blocks, sessions=self._spec.sessions)

    def _vocabulary_size(self) -> int:
        """As given, as the tokenizer has it, as the server says it, or assumed where nobody does."""
        client, model = self._client, self._spec.model
        if client.vocabulary is not None:
            return client.vocabulary
        try:
            tokenizer, _ = load_tokenizer(client.tokenizer, model)
        except WorkloadError:
            if client.tokenizer:
                raise UserError(self._no_tokenizer()) from None
            size = self._ask_vocabulary()
            if size is not None:
                self.notes.append(f"prompts are ids of a vocabulary of {size:,}, as the server says")
                return size
            self.notes.append(
                f"prompts are ids below {ASSUMED_VOCABULARY:,}, an assumed vocabulary: the tokenizer of {model} "
                "could not be had; give --vocabulary or --tokenizer"
            )
            return ASSUMED_VOCABULARY
        return tokenizer.get_vocab_size()

    def _no_tokenizer(self) -> str:
        name = self._client.tokenizer or self._spec.model
        return (
            f"the tokenizer of {name} cannot be had: give --tokenizer PATH (a folder with tokenizer.json), a Hugging "
            "Face id that can be reached, or qwen after `pip install 'schedbench[qwen]'`"
        )

    def _hint(self, row: int) -> int | tuple[int, int] | None:
        """The output tokens that the scheduler is told to expect, one number where the interval is a point."""
        if self.hints is None:
            return None
        low, high = int(self.hints.low[row]), int(self.hints.high[row])
        return high if low == high else (low, high)

    def fields(self) -> list[str]:
        """The names of all that stands in a body."""
        return list(orjson.loads(self.warmup(1)[0].body))

    def _body(self, prompt: Any, max_tokens: int, row: int, out_hint: int | tuple[int, int] | None = None) -> bytes:
        model, client = self._spec.model, self._client
        extra = self._extra | hint_fields(out_hint)
        for counted in self.counted:
            extra |= counting_fields(counted)
        seed, ignore_eos, form = self._spec.seed + row, client.ignore_eos, client.form
        if client.api == "chat":
            messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
            return chat_body(model, messages, max_tokens, seed=seed, ignore_eos=ignore_eos, extra=extra, form=form)
        if isinstance(self._prompts, DatasetPrompts) and "template" in self._stream.trace.source:
            # A rendered text has its special tokens in it.
            extra |= {"add_special_tokens": False}
        return completion_body(model, prompt, max_tokens, seed=seed, ignore_eos=ignore_eos, extra=extra, form=form)
