"""`bench run --url …`: a session against a server that already runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.doctor import warnings
from harness.drive.endpoint import Endpoint, key_from
from harness.engines.discover import models_of, wait_until_ready
from harness.engines.endpoint import Client, EndpointEngine
from harness.errors import UserError
from harness.run import stream_of
from harness.runspec import RunSpec
from harness.session import RunSession, asked_of, check_sharing
from workloads.arrivals import Stream

READY_TIMEOUT_S = 60.0


def against(options: dict[str, Any], out: Path, quiet: bool) -> RunSession:
    """The session that the options of `bench run` ask for, once the server is ready and its model known."""
    endpoint = Endpoint(
        url=options["url"],
        chat=options["api"] == "chat",
        key=key_from(options["key_env"]) if options["key_env"] else None,
        ca_file=options["ca_file"],
    )
    client = client_of(options)
    check_sharing(options, "endpoint")
    wait_until_ready(endpoint, READY_TIMEOUT_S if options["ready_timeout"] is None else options["ready_timeout"])
    served = models_of(endpoint) if options["model"] is None else [options["model"]]
    if len(served) > 1:
        raise UserError(f"--url {endpoint.url}: serves {', '.join(served)}: choose one with --model")

    def make(spec: RunSpec, stream: Stream) -> EndpointEngine:
        return EndpointEngine(spec, stream, endpoint, client)

    asked = asked_of(options | {"model": served[0]}, client.decides())
    session = RunSession(asked, out, quiet, make)
    session.warn(warnings(*planned_load(session.specs[0], client.processes)))
    return session


def client_of(options: dict[str, Any]) -> Client:
    """How the options of `bench run` ask for a server to be driven."""
    return Client(
        api=options["api"],
        prompts="text" if options["api"] == "chat" and options["prompts"] == "ids" else options["prompts"],
        ignore_eos=not options["no_ignore_eos"],
        timeout_s=options["timeout"],
        first_token_timeout_s=options["first_token_timeout"],
        retries_429=options["retry_429"],
        processes=options["processes"],
        warmup=options["warmup"],
        vocabulary=options["vocabulary"],
        tokenizer=options["tokenizer"],
    )


def planned_load(spec: RunSpec, processes: int) -> tuple[int | None, float | None]:
    """What one driving process would carry: requests in flight of a closed loop, tokens/s of an open one."""
    stream = stream_of(spec)
    if stream.due_ns is None:
        return -(-min(stream.concurrency or 0, len(stream.trace)) // processes), None
    seconds = max(float(stream.due_ns[-1]) / 1e9, 1e-9)
    return None, float(stream.trace.output_tokens.sum()) / seconds / processes
