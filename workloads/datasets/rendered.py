"""Conversations by the model's chat template: each turn with those before it, as one text that a server is sent.

Before a turn stand the turns of its session that the trace keeps, the data set's own answers among them, each cut to
the tokens that the trace gives it (`output_cap`, `forced`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.trace import Ints, Trace
from workloads.datasets.chat import ChatPair
from workloads.datasets.conversations import ChatForm, ChatPart, taken
from workloads.datasets.counting import Columns, Meta, Reading, TextRow, count_rows, counted
from workloads.datasets.shards import Shards
from workloads.text.chat_template import ChatTemplate, Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KEPT = ("session", "turn", "prompt_tokens")
RENDERING = (
    "the model's chat template over the session's earlier turns and this one, the data set's own answers "
    "cut to their output_tokens; no system turns"
)


@dataclass(frozen=True, slots=True)
class ConversationFiles:
    """Where the conversations of a trace are read again, and with what their answers are cut."""

    shards: Shards
    form: ChatForm
    part: ChatPart
    tokenizer: Tokenizer
    allow_truncated: bool

    def messages(self, trace: Trace) -> Iterator[tuple[tuple[int, int], list[Message]]]:
        """Place and messages of every row, by session and turn; WorkloadError where the files no longer hold one."""
        sessions, turns, outputs = (column.tolist() for column in _in_order(trace))
        at = 0
        for session, pairs, _ in taken(self.shards, self.form, self.part, Reading(), self.allow_truncated):
            end = at
            while end < len(sessions) and sessions[end] == session:
                end += 1
            if end > at:
                if turns[end - 1] >= len(pairs):
                    break
                used = [pairs[turn] for turn in turns[at:end]]
                answers = self._cut(used[:-1], outputs[at:end])
                messages: list[Message] = []
                for turn, pair, answer in zip(turns[at:end], used, [*answers, ""], strict=True):
                    messages = [*messages, {"role": "user", "content": pair.prompt + self.part.suffix}]
                    yield (session, turn), messages
                    messages = [*messages, {"role": "assistant", "content": answer}]
                at = end
            if at == len(sessions):
                return
        raise WorkloadError(
            f"{trace.name}: row {sessions[at]}-{turns[at]} is not there any more: the files have changed"
        )

    def _cut(self, used: list[ChatPair], outputs: list[int]) -> list[str]:
        """The answers, none of more tokens than its output, cut at the edges of tokens."""
        answers = [pair.answer for pair in used]
        encoded = self.tokenizer.encode_batch(answers, add_special_tokens=False)
        return [
            answer[: encoding.offsets[most - 1][1]] if len(encoding) > most else answer
            for answer, encoding, most in zip(answers, encoded, outputs, strict=False)
        ]


def texts(trace: Trace, files: ConversationFiles, template: ChatTemplate) -> Iterator[tuple[tuple[int, int], str]]:
    """Place and rendered text of every row, by session and turn."""
    for place, messages in files.messages(trace):
        yield place, template.render(messages, f"{trace.name}, conversation {place[0]}, turn {place[1]}")


def with_template(trace: Trace, files: ConversationFiles, template: ChatTemplate) -> Trace:
    """The trace with prompts as long as their rendered texts, from the cache where they were counted before."""
    rows = _in_order(trace)
    reading = json.dumps(
        [
            "rendered 1",
            *(files.form.column, dataclasses.asdict(files.part), files.allow_truncated, template.sha256),
            # Which turns there are, and where answers are cut, is all that the options before decide.
            hashlib.sha256(np.stack(rows).astype("<i8").tobytes()).hexdigest(),
        ],
        sort_keys=True,
    )
    kept = cache.lengths_path(trace.source["file_sha256"], trace.source["tokenizer_sha256"], reading)

    def usable(columns: Columns, meta: Meta) -> bool:
        session, turn, _ = rows
        same = np.array_equal(columns["session"], session) and np.array_equal(columns["turn"], turn)
        return same and int(columns["prompt_tokens"].min()) > 0

    def anew() -> tuple[Columns, Meta]:
        made = (TextRow(place, (text,)) for place, text in texts(trace, files, template))
        table = count_rows(made, files.tokenizer, len(KEPT))
        empty = np.flatnonzero(table[:, 2] < 1)
        if len(empty):
            session, turn, _ = table[empty[0]].tolist()
            raise WorkloadError(
                f"{trace.name}, conversation {session}, turn {turn}: the chat template of {template.file} makes "
                "nothing of it: give the tokenizer of another model, or leave out template=true"
            )
        return dict(zip(KEPT, np.ascontiguousarray(table.T), strict=True)), {}

    columns, _, notices = counted(kept, KEPT, usable, anew)
    prompt = np.empty(len(trace), dtype=np.int64)
    prompt[_order(trace)] = columns["prompt_tokens"]
    source = {
        **trace.source,
        "rendering": RENDERING,
        "template": {"file": template.file, "sha256": template.sha256},
    }
    notices = list(dict.fromkeys([*trace.source.get("notices", []), *notices]))
    if notices:
        source["notices"] = notices
    return dataclasses.replace(trace, prompt_tokens=prompt, source=source)


def _order(trace: Trace) -> Ints:
    """The rows by session and turn."""
    assert trace.session is not None
    assert trace.turn is not None
    return np.lexsort((trace.turn, trace.session))


def _in_order(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """Session, turn and output of every row, by session and turn."""
    assert trace.session is not None
    assert trace.turn is not None
    order = _order(trace)
    return trace.session[order], trace.turn[order], trace.output_tokens[order]
