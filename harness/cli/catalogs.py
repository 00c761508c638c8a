"""`bench policies`, `bench workloads` and `bench gpus`: what there is to choose from."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.options import JSON


@click.command(name="policies")
@JSON
def list_policies(as_json: bool) -> None:
    """List the policies with their options and where they come from."""
    from harness.cli.catalog_documents import policies_document
    from policies.catalog import POLICIES
    from policies.offline.catalog import OFFLINE

    _print_catalog(policies_document(POLICIES, OFFLINE), "policies", as_json)


@click.command(name="workloads")
@JSON
def list_workloads(as_json: bool) -> None:
    """List the workloads with their options and where they come from."""
    from harness.cli.catalog_documents import workloads_document
    from workloads.catalog import CATALOG

    _print_catalog(workloads_document(CATALOG), "workloads", as_json)


@click.command(name="gpus")
@JSON
def list_gpus(as_json: bool) -> None:
    """List GPUs and models: on how many GPUs one fits, which cost models price it, and where their tables are thin.

    Any other model goes by its config.json or its id on huggingface.co (`bench run --model`).
    """
    import orjson

    from harness.cli.catalog_documents import pairs_document, pairs_tables
    from harness.core.console import plain_console

    pairs = pairs_document()
    if as_json:
        click.echo(orjson.dumps({"pairs": pairs}))
    else:
        plain_console().print(pairs_tables(pairs))


def _print_catalog(entries: list[dict[str, Any]], name: str, as_json: bool) -> None:
    import orjson

    from harness.cli.catalog_documents import catalog_table
    from harness.core.console import plain_console

    if as_json:
        click.echo(orjson.dumps({name: entries}))
    else:
        plain_console().print(catalog_table(entries))
