"""A server that already runs, driven over HTTP: any that speaks OpenAI's completions or chat completions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from harness import __version__
from harness.core.errors import UserError
from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.drive.bodies import counting_fields
from harness.drive.endpoint import Endpoint
from harness.drive.hosts import Hosts
from harness.drive.openai_stream import EVENTS, IDS, USAGE
from harness.drive.settings import Settings
from harness.drive.workers import Outcome, Snapshot, drive
from harness.engines.base import Ended, Progress, Status, Stopped, cut_short
from harness.engines.client import Client
from harness.engines.outlived import Outlived
from harness.engines.remedies import remedy_for
from harness.engines.requests import StreamRequests
from harness.engines.serving.probe import Served
from harness.engines.serving.scraper import Scraper
from harness.engines.serving.server_info import info_of
from harness.engines.serving.vocabulary import vocabulary_of
from harness.runs.writer import RunWriter
from workloads.core.stream import Stream


class EndpointEngine:
    """One run against a server, ready to go; raises UserError for what the user can mend.

    `endpoint` may be set until `replay` begins, where the server starts later than the prompts are made; `note`
    then stands for what is said of it. `extra` is what every request's body carries besides. `served` is what the
    server says of the model. With `hosts` they drive; the warm-up is this host's.
    """

    kind = "measured"
    policy_file = None

    def __init__(
        self,
        spec: RunSpec,
        stream: Stream,
        endpoint: Endpoint,
        client: Client,
        note: str | None = None,
        *,
        extra: Mapping[str, Any] | None = None,
        served: Served | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self.spec = spec
        self.stream = stream
        self.endpoint = endpoint
        self.client = client
        self.served = served or Served(spec.model)
        self.hosts = hosts
        self.degraded: list[str] = []
        processes = client.processes if hosts is None else hosts.count
        if len(stream.levels) > 1 and processes > 1:
            name = "--processes" if client.processes > 1 else "--drivers"
            raise UserError(f"{name}: a schedule of concurrency is kept by one process: leave {name} out")
        self.requests = StreamRequests(spec, stream, client, extra or {}, self._ask_vocabulary)
        of_server = note or f"measured: {endpoint.url} driven over HTTP; policy and GPU are labels given by the user"
        self.notes = [of_server, *self.requests.notes]

    def _ask_vocabulary(self) -> int | None:
        return vocabulary_of(self.endpoint, self.served)

    def provenance(self) -> dict[str, Any]:
        """The server and what it says of itself, the client."""
        info = info_of(self.endpoint)
        server: dict[str, Any] = {"owned_by": self.served.owner} if self.served.owner else {}
        if info is not None:
            server |= {"told_at": info.told_at, **info.settings}
        return {
            "engine": "endpoint",
            "engine_version": "unknown" if info is None else info.version,
            "server": server,
            "url": self.endpoint.url,
            "path": self.endpoint.path,
            "driver": f"schedbench {__version__}",
            "processes": self.client.processes,
        }

    def replay(self, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Warms the server up, then drives the stream, keeping rows, the server's metrics and the client's load."""
        warmup = self._warm_up(writer, stopped)
        first_error, outlived = _FirstError(), Outlived(self.requests.hints)

        def sink(batch: pa.RecordBatch) -> None:
            outlived.see(batch.column("row").to_numpy(), batch.column("output_tokens").to_numpy())
            first_error.see(batch)
            writer.add_requests(batch)

        with Scraper(self.endpoint, writer.partial) as scraper:
            outcome = drive(
                self.requests.planned(),
                self.endpoint,
                self._settings_of_stream(),
                sink,
                processes=self.client.processes,
                hosts=self.hosts,
                progress=lambda snapshot: progress(_status(snapshot)),
                stopped=stopped,
                started=lambda t0_ns: writer.learn(clock={"origin_ns": t0_ns}),
            )
        observed = {"client": outcome.client, "warmup": warmup} | outlived.observed
        if self.spec.max_duration_s is not None:
            observed["planned"] = {"requests": outcome.recorded}
        notes = self._notes_on(outcome, (*scraper.notes, *outlived.notes), first_error.error)
        status, reason = outcome.status, outcome.reason
        if status == "complete" and outcome.recorded and not outcome.completed:
            status, reason = "failed", f"no request of {outcome.recorded:,} completed; the first: {first_error.error}"
            remedy = remedy_for(first_error.error or "", self.endpoint, self.requests.fields())
            reason += f" ({remedy})" if remedy else ""
        return Ended(status, reason, notes, observed)

    def _notes_on(self, outcome: Outcome, notes: Sequence[str], first_error: str | None) -> tuple[str, ...]:
        """What to say of a run that has ended, `notes` among it."""
        notes = [*outcome.notes, *cut_short(self.spec.max_duration_s, outcome.sent, len(self.stream.trace)), *notes]
        errors = ", ".join(f"{count} {name}" for name, count in outcome.errors.most_common())
        together = outcome.client.get("tokens_per_event") or 1.0
        if abs(together - 1) >= 0.005:
            told = set(outcome.client["counted"]) != {EVENTS}
            how = "as the server tells" if told else "taken as evenly spread, since the server does not tell"
            notes.append(f"{together:.2f} tokens an event, {how}: ITL and TPOT are per token")
        if errors:
            notes.append(f"requests that failed, by reason: {errors}; the first: {first_error}")
        return tuple(notes)

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
            told=bool(self.requests.counted),
            accept=self.client.accept,
        )

    def _warm_up(self, writer: RunWriter, stopped: Stopped) -> dict[str, Any]:
        """Requests of their own that are recorded apart and never counted; UserError where none is answered.

        With them the server is asked to tell how many tokens an event holds. From then on it is asked in the way in
        which it did, and not where it did not, or refused to be asked.
        """
        count, ways = self.client.warmup, self._ways_to_count()
        if not count:
            self.requests.counted = ways if self.served.tells_tokens else frozenset()
            return {"requests": 0}
        self.requests.counted = ways
        outcome, errors = self._drive_warmup(count, writer, stopped)
        if ways and not outcome.completed and all(error.startswith(_REFUSED) for error in errors) and not stopped():
            self.requests.counted = frozenset()
            outcome, errors = self._drive_warmup(count, writer, stopped)
        self.requests.counted &= frozenset(outcome.client.get("counted", ()))
        if outcome.recorded and not outcome.completed and not stopped():
            error = errors[0]
            remedy = remedy_for(error, self.endpoint, self.requests.fields()) or "--warmup 0 leaves it out"
            raise UserError(
                f"--url {self.endpoint.url}: no warm-up request of {count} was answered well: {error} ({remedy})"
            )
        return {"requests": count, "completed": outcome.completed}

    def _ways_to_count(self) -> frozenset[str]:
        """How the server may be asked for the tokens of its events: not by fields that the user has set or left out.

        In chat an event may show nothing of a token, and then brings no usage either: its ids are asked for as well.
        """
        form = self.client.form
        ways = (USAGE, IDS) if self.client.api == "chat" else (USAGE,)
        given = {*form.fields, *form.left_out}
        return frozenset(way for way in ways if not given & counting_fields(way).keys())

    def _drive_warmup(self, count: int, writer: RunWriter, stopped: Stopped) -> tuple[Outcome, list[str]]:
        """How the warm-up went, and its failures."""
        import pyarrow.parquet as pq

        batches: list[pa.RecordBatch] = []
        planned = self.requests.warmup(count)
        outcome = drive(planned, self.endpoint, self._settings(count), batches.append, stopped=stopped)
        table = pa.Table.from_batches(batches, schema=REQUESTS)
        with (writer.partial / "warmup.parquet").open("wb") as file:
            pq.write_table(table, file)
        return outcome, [error for error in table.column("error").to_pylist() if error]


# What servers say to a field that they do not know.
_REFUSED = ("http_400", "http_422", "http_500", "http_501")


class _FirstError:
    """Remembers what the first failure of a run said."""

    error: str | None = None

    def see(self, batch: pa.RecordBatch) -> None:
        """Requests that have ended."""
        if self.error is None:
            self.error = next((error for error in batch.column("error").to_pylist() if error), None)


def _status(snapshot: Snapshot) -> Status:
    return Status(
        finished=snapshot.completed + snapshot.failed,
        now_s=snapshot.elapsed_s,
        output_tokens=snapshot.output_tokens,
        in_flight=snapshot.in_flight,
        failed=snapshot.failed,
        lag_s=snapshot.max_lag_s,
        cpu_share=snapshot.cpu_share,
    )
