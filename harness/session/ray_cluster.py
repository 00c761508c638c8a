"""A Ray cluster: reached, and refused where a node has another bench."""

from __future__ import annotations

import os
from typing import Any

from harness import __version__
from harness.core.errors import UserError
from harness.runs.provenance import commit


def version() -> str:
    """What must be equal on all nodes: version and commit of bench."""
    return f"{__version__} ({(commit() or 'installed')[:12]})"


def connect(address: str, jobs: int | None = None) -> Any:
    """Ray, joined to the cluster at `address`: auto, ray://HOST:PORT, HOST:PORT, or local (of `jobs` processors).

    UserError where Ray is not installed, no cluster answers, or a node has another bench.
    """
    # Ray would tell its makers of each cluster.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # It would wait for minutes where nobody answers.
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
    os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", "5")
    try:
        import ray
    except ImportError:
        raise UserError("--address needs Ray: pip install 'schedbench[ray]', here and on every node") from None
    where = {"num_cpus": jobs} if address == "local" else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level="ERROR", include_dashboard=None)
    except (ConnectionError, ValueError, RuntimeError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise UserError(f"--address {address}: no Ray cluster there ({line}): `ray start --head` begins one") from None
    _check_nodes(ray)
    return ray


def nodes_of(ray: Any) -> list[dict[str, Any]]:
    """The cluster's nodes that are there."""
    return [node for node in ray.nodes() if node["Alive"]]


def _check_nodes(ray: Any) -> None:
    """UserError where a node has another bench, or none."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(version)
    asked = {
        node["NodeManagerAddress"]: probe.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in nodes_of(ray)
    }
    for address, reference in asked.items():
        try:
            there = ray.get(reference, timeout=120)
        except Exception as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            there = f"none that runs: {line}"
        if there != version():
            raise UserError(f"node {address} has bench {there}, here is {version()}: install the same there")
