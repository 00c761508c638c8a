"""A server that already runs, driven over HTTP: any that speaks OpenAI's completions or chat completions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from harness import __version__
from harness.core.errors import UserError
from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.drive.bodies import chat_body, completion_body, hint_fields
from harness.drive.endpoint import Endpoint
from harness.drive.plan import Planned
from harness.drive.settings import Settings
from harness.drive.workers import Snapshot, drive
from harness.engines.base import Ended, Progress, Status, Stopped, cut_short
from harness.engines.outlived import Outlived
from harness.engines.serving.probe import Scraper, engine_of
from harness.runs.writer import RunWriter
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


@dataclass(frozen=True, slots=True)
class Client:
    """How the server is driven; what decides the numbers of it stands in the spec's `client`.

    `prompts` is ids, text (seeded words) or dataset (the data set's own text). `vocabulary` None means the
    tokenizer's, or an assumed one; `tokenizer` as workloads.tokenizer reads it.
    """

    api: str = "completions"
    prompts: str = "ids"
    ignore_eos: bool = True
    timeout_s: float | None = 3600.0
    first_token_timeout_s: float | None = None
    processes: int = 1
    warmup: int = 4
    retries_429: int = 0
    vocabulary: int | None = None
    tokenizer: str = ""

    def decides(self) -> dict[str, Any]:
        """The part that a comparison must find equal."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "processes"}


class EndpointEngine:
    """One run against a server, ready to go; raises UserError for what the user can mend.

    `endpoint` may be set until `replay` begins, where the server starts later than the prompts are made; `note`
    then stands for what is said of it.
    """

    kind = "measured"

    def __init__(
        self, spec: RunSpec, stream: Stream, endpoint: Endpoint, client: Client, note: str | None = None
    ) -> None:
        self.spec = spec
        self.stream = stream
        self.endpoint = endpoint
        self.client = client
        self.degraded: list[str] = []
        self.notes = [note or f"measured: {endpoint.url} driven over HTTP; policy and GPU are labels given by the user"]
        self.hints = hints_of(spec.lengths, stream.trace, spec.seed)
        if len(stream.levels) > 1 and client.processes > 1:
            raise UserError("--processes: a schedule of concurrency is kept by one process: leave --processes out")
        # What every request's body carries besides, and whether the server is believed that tells an event's tokens.
        self.extra: dict[str, Any] = {}
        self.told = False
        self._prompts = self._prompts_of()

    def _prompts_of(self) -> TokenPrompts | TextPrompts | DatasetPrompts:
        trace, seed, client = self.stream.trace, self.spec.seed, self.client
        if client.prompts == "dataset":
            return self._dataset_prompts()
        if client.prompts == "text":
            try:
                tokenizer, _ = load_tokenizer(client.tokenizer, self.spec.model)
            except WorkloadError:
                raise UserError(f"text prompts need a tokenizer to count with: {self._no_tokenizer()}") from None
            if client.api == "chat":
                self.notes.append("chat: the template's own tokens come on top of each prompt's length")
            # `/v1/completions` adds the tokenizer's own special tokens to a text, a chat template brings its own.
            words = Words(tokenizer, add_special_tokens=client.api != "chat")
            return TextPrompts(trace, seed, words, blocks=trace.blocks, sessions=self.spec.sessions)
        size = client.vocabulary
        if size is None:
            try:
                tokenizer, _ = load_tokenizer(client.tokenizer, self.spec.model)
                size = tokenizer.get_vocab_size()
            except WorkloadError:
                if client.tokenizer:
                    raise UserError(self._no_tokenizer()) from None
                size = ASSUMED_VOCABULARY
                self.notes.append(
                    f"prompts are ids below {size:,}, an assumed vocabulary: the tokenizer of {self.spec.model} "
                    "could not be had; give --vocabulary or --tokenizer"
                )
        return TokenPrompts(trace, seed, safe_ids(size), blocks=trace.blocks, sessions=self.spec.sessions)

    def _no_tokenizer(self) -> str:
        name = self.client.tokenizer or self.spec.model
        return (
            f"the tokenizer of {name} cannot be had: give --tokenizer PATH (a folder with tokenizer.json), a Hugging "
            "Face id that can be reached, or qwen"
        )

    def _dataset_prompts(self) -> DatasetPrompts:
        chat = self.client.api == "chat"
        if "template" in self.stream.trace.source:
            self.notes.append("prompts carry the data set's own earlier answers, not the model's")
            if chat:
                self.notes.append(
                    "chat: the server renders the messages by its own template; lengths are by the trace's"
                )
        elif self.spec.sessions:
            raise UserError(
                "--sessions: --prompts dataset sends each pair alone: leave out --sessions, take wildchat or lmsys "
                "with template=true (the history by the model's chat template), or send --prompts ids or text"
            )
        return DatasetPrompts(self.stream.trace, dataset_texts(self.spec.workload, self.spec.model, chat))

    def provenance(self) -> dict[str, Any]:
        """The server and what it says of itself, the client."""
        told = engine_of(self.endpoint)
        return {
            "engine": "endpoint",
            "engine_version": told.get("version", "unknown"),
            "url": self.endpoint.url,
            "driver": f"schedbench {__version__}",
            "processes": self.client.processes,
        }

    def replay(self, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Warms the server up, then drives the stream, keeping rows, the server's metrics and the client's load."""
        warmup = self._warm_up(writer, stopped)
        first, outlived = _FirstError(), Outlived(self.hints)

        def sink(batch: pa.RecordBatch) -> None:
            outlived.see(batch.column("row").to_numpy(), batch.column("output_tokens").to_numpy())
            writer.add_requests(first.seen(batch))

        with Scraper(self.endpoint, writer.partial) as scraper:
            outcome = drive(
                self._planned(),
                self.endpoint,
                self._settings_of_stream(),
                sink,
                processes=self.client.processes,
                progress=lambda one: progress(_status(one)),
                stopped=stopped,
                started=lambda t0_ns: writer.learn(clock={"origin_ns": t0_ns}),
            )
        notes = [*outcome.notes, *cut_short(self.spec.max_duration_s, outcome.sent, len(self.stream.trace))]
        notes += [*scraper.notes, *outlived.notes]
        errors = ", ".join(f"{count} {name}" for name, count in outcome.errors.most_common())
        if errors:
            notes.append(f"requests that failed, by reason: {errors}; the first: {first.error}")
        observed: dict[str, Any] = {"client": outcome.client, "warmup": warmup} | outlived.observed
        if self.spec.max_duration_s is not None:
            observed["planned"] = {"requests": outcome.recorded}
        status, reason = outcome.status, outcome.reason
        if status == "complete" and outcome.recorded and not outcome.completed:
            status, reason = "failed", f"no request of {outcome.recorded:,} completed; the first: {first.error}"
        return Ended(status, reason, tuple(notes), observed)

    def _settings_of_stream(self) -> Settings:
        stream = self.stream
        settings = self._settings(stream.concurrency)
        if len(stream.levels) < 2:
            return settings
        return dataclasses.replace(settings, levels=stream.levels, drain=stream.drain)

    def _settings(self, concurrency: int | None) -> Settings:
        return Settings(
            concurrency=concurrency,
            ignore_eos=self.client.ignore_eos,
            timeout_s=self.client.timeout_s,
            first_token_timeout_s=self.client.first_token_timeout_s,
            max_duration_s=self.spec.max_duration_s,
            retries_429=self.client.retries_429,
            told=self.told,
        )

    def _planned(self) -> Iterator[Planned]:
        """Every request of the stream with its body; a later turn of a session waits for the answer before it."""
        trace, due_ns = self.stream.trace, self.stream.due_ns
        prompts, output = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
        sessions = turns = None
        later: set[int] = set()
        think_ns = self.stream.think_ns
        if think_ns is not None and trace.session is not None and trace.turn is not None:
            sessions, turns = trace.session.tolist(), trace.turn.tolist()
            later.update(turns_of(trace).after.values())
        for row, prompt in enumerate(self._each_prompt()):
            yield Planned(
                id=trace.id_of(row),
                row=row,
                due_ns=None if due_ns is None or row in later else int(due_ns[row]),
                body=self._body(prompt, output[row], row, self._hint(row)),
                prompt_tokens=prompts[row],
                expected_output_tokens=output[row],
                session=None if sessions is None else sessions[row],
                turn=None if turns is None else turns[row],
                think_ns=think_ns or 0,
            )

    def _each_prompt(self) -> Iterator[Any]:
        rows = range(len(self.stream.trace))
        if isinstance(self._prompts, TokenPrompts):
            return map(self._prompts.ids, rows)
        return self._prompts.texts(rows)

    def _hint(self, row: int) -> int | tuple[int, int] | None:
        """The output tokens that the scheduler is told to expect, one number where the interval is a point."""
        if self.hints is None:
            return None
        low, high = int(self.hints.low[row]), int(self.hints.high[row])
        return high if low == high else (low, high)

    def _body(self, prompt: Any, max_tokens: int, row: int, out_hint: int | tuple[int, int] | None = None) -> bytes:
        seed, extra = self.spec.seed + row, self.extra | hint_fields(out_hint)
        if self.client.api == "chat":
            messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
            return chat_body(
                self.spec.model, messages, max_tokens, seed=seed, ignore_eos=self.client.ignore_eos, extra=extra
            )
        if isinstance(self._prompts, DatasetPrompts) and "template" in self.stream.trace.source:
            # A rendered text has its special tokens in it.
            extra = extra | {"add_special_tokens": False}
        return completion_body(
            self.spec.model, prompt, max_tokens, seed=seed, ignore_eos=self.client.ignore_eos, extra=extra
        )

    def _warm_up(self, writer: RunWriter, stopped: Stopped) -> dict[str, Any]:
        """Requests of their own that are recorded apart and never counted; UserError where none is answered."""
        count = self.client.warmup
        if not count:
            return {"requests": 0}
        import pyarrow.parquet as pq

        tokens, outputs = 64, 16
        rows: list[pa.RecordBatch] = []
        planned = [
            Planned(f"warmup-{i}", i, None, self._body(self._prompts.warmup(i, tokens), outputs, i), tokens, outputs)
            for i in range(count)
        ]
        outcome = drive(planned, self.endpoint, self._settings(count), rows.append, stopped=stopped)
        table = pa.Table.from_batches(rows, schema=REQUESTS)
        with (writer.partial / "warmup.parquet").open("wb") as file:
            pq.write_table(table, file)
        if outcome.recorded and not outcome.completed and not stopped():
            first = next(error for error in table.column("error").to_pylist() if error)
            hint = "--warmup 0 leaves it out"
            if "vocabulary" in first:
                hint = "give --vocabulary"
            elif first.startswith(("short", "overlong")):
                hint = "give --no-ignore-eos where the server ends answers itself"
            raise UserError(
                f"--url {self.endpoint.url}: no warm-up request of {count} was answered well: {first} ({hint})"
            )
        return {"requests": count, "completed": outcome.completed}


class _FirstError:
    """Remembers what the first failure of a run said."""

    error: str | None = None

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as it is."""
        if self.error is None:
            self.error = next((one for one in batch.column("error").to_pylist() if one), None)
        return batch


def _status(one: Snapshot) -> Status:
    return Status(
        finished=one.completed + one.failed,
        now_s=one.elapsed_s,
        output_tokens=one.output_tokens,
        in_flight=one.in_flight,
        failed=one.failed,
        lag_s=one.max_lag_s,
        cpu_share=one.cpu_share,
    )
