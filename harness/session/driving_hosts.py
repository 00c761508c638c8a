"""The hosts that drive together, as `bench run --drivers` asks for them."""

from __future__ import annotations

from harness.core.errors import UserError
from harness.drive.hosts import Hosts, Node
from harness.session.options import RunOptions
from harness.session.ray_cluster import connect, nodes_of


def driving_hosts(options: RunOptions) -> Hosts | None:
    """The nodes of a Ray cluster that drive, ready; None where this host drives alone.

    UserError where there is no such cluster, or too few nodes in it.
    """
    if options.drivers is None:
        if options.address is not None:
            raise UserError("--address goes with --drivers: it names the Ray cluster whose nodes drive")
        return None
    address = options.address or "auto"
    ray = connect(address)
    nodes = sorted(nodes_of(ray), key=lambda node: (node["NodeManagerAddress"], node["NodeID"]))
    if len(nodes) < options.drivers:
        raise UserError(
            f"--drivers {options.drivers}: the Ray cluster at {address} has only {len(nodes)}: start more with "
            "`ray start --address`, or give --processes for more driving processes on each"
        )
    chosen = []
    for node in nodes[: options.drivers]:
        name = f"{node['NodeManagerAddress']} ({node['NodeID'][:6]})"
        processors = int(node["Resources"].get("CPU", 0))
        if processors < options.processes:
            raise UserError(
                f"--processes {options.processes}: node {name} has {processors} processors, and each driving process "
                "takes one: give fewer"
            )
        chosen.append(Node(node["NodeID"], name))
    return Hosts(ray, chosen, options.processes)
