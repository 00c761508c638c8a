"""The package of kernel times, where it is installed: any operation, looked up and interpolated on the spot.

`aiconfigurator-core` (NVIDIA, Apache-2.0) has, for each GPU, the times of vLLM's own kernels over grids of sizes.
Its code is never run: its Parquet files are read.
"""

from __future__ import annotations

import functools
import importlib.util
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.core.errors import UserError
from harness.profiles.kernels.curves import Curve, Floats
from harness.profiles.kernels.measured import Measured, as_stored
from harness.profiles.kernels.operations import AllReduce, AttentionKernel, ExpertLayer, Gemm, Operation
from harness.profiles.kernels.systems import System

PACKAGE, VERSION = "aiconfigurator-core", "0.12.0"
EXTRA = "pip install 'schedbench[kernels]'"
# Where several kernels were measured at one point, the first of these that was: what vLLM prefers.
KERNELS = ("fa3", "fa2", "fa4", "flashinfer", "triton")
# A matrix of up to so many times the widest columns is computed in parts.
SPLIT = 8
# How unevenly tokens fall on experts: the package's own choice for these models.
ROUTING = "power_law_1.2"
Ints = npt.NDArray[np.int64]
BF16 = ("bfloat16", "float16")


class NoSuchTimesError(UserError):
    """The tables have no times for this; the line says what is missing."""


def installed() -> Path | None:
    """The folder of the package's tables, None where it is not installed; UserError where its version is another."""
    spec = importlib.util.find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = metadata.version(PACKAGE)
    if found != VERSION:
        raise UserError(
            f"{PACKAGE} {found} is installed and {VERSION} is what the step costs rest on: "
            f"pip install {PACKAGE}=={VERSION}"
        )
    return Path(spec.submodule_search_locations[0]) / "systems" / "data"


def from_package(data: Path, system: System, operation: Operation) -> Measured:
    """The times of an operation; NoSuchTimesError where the package has none and none can be told from others."""
    root = data / system.folder
    if isinstance(operation, Gemm):
        return _gemm(root / f"gemm/vllm/{system.version}/gemm_perf.parquet", operation)
    if isinstance(operation, AttentionKernel):
        name = "context" if operation.phase == "prefill" else "generation"
        return _attention(root / f"attention/vllm/{system.version}/{name}_attention_perf.parquet", operation)
    if isinstance(operation, ExpertLayer):
        return _experts(root / f"moe/vllm/{system.version}/moe_perf.parquet", operation)
    return _all_reduce(root / f"comm/vllm/{system.all_reduce_version}/custom_allreduce_perf.parquet", operation)


@functools.lru_cache(maxsize=16)
def _table(path: Path) -> pa.Table:
    if not path.is_file():
        raise NoSuchTimesError(f"the tables of {path.parents[3].name} have no {path.parents[2].name} times")
    return pq.read_table(path)


def _where(table: pa.Table, **equal: Any) -> pa.Table:
    """The rows whose columns have these values, or one of them."""
    for name, value in equal.items():
        values = value if isinstance(value, tuple) else (value,)
        table = table.filter(pc.is_in(table[name], pa.array(values, type=table[name].type)))
    return table


def _seconds(table: pa.Table) -> Floats:
    return np.asarray(table["latency"].to_numpy(), dtype=np.float64) * 1e-3


def _gemm(path: Path, gemm: Gemm) -> Measured:
    """Bilinear in log2 of columns, rows and time; columns beyond the table's take proportionally longer."""
    types = BF16 if gemm.weights == "bfloat16" else gemm.weights
    table = _where(_table(path), gemm_dtype=types)
    if not table.num_rows:
        raise NoSuchTimesError(f"no {gemm.weights} matrices were measured on this GPU")
    n, k = (np.unique(table[name].to_numpy()) for name in ("n", "k"))
    m = np.unique(table["m"].to_numpy())
    near_n, near_k = _neighbours(n, gemm.outputs), _neighbours(k, gemm.inputs)
    if gemm.outputs > SPLIT * n[-1] or gemm.inputs > k[-1]:
        raise NoSuchTimesError(
            f"no {gemm.weights} matrix near {gemm.outputs} columns and {gemm.inputs} rows was measured on this GPU"
        )
    rows = []
    for column in near_n:
        found = [_gemm_curve(table, column, row).at(m) for row in near_k]
        rows.append(_between(near_k, found, gemm.inputs))
    seconds = _between(near_n, rows, gemm.outputs)
    said = [str(pc.unique(table["kernel_source"])[0])]
    if gemm.outputs > n[-1]:
        seconds = seconds * (gemm.outputs / float(n[-1]))
        said.append(f"{gemm.outputs} columns as {gemm.outputs / float(n[-1]):.2f} times {n[-1]}")
    elif len(near_n) > 1:
        said.append(f"columns between {near_n[0]} and {near_n[1]}")
    elif gemm.outputs < n[0]:
        said.append(f"{gemm.outputs} columns as {n[0]}")
    if len(near_k) > 1:
        said.append(f"rows between {near_k[0]} and {near_k[1]}")
    return Measured(m.astype(np.float64), None, as_stored(seconds), ", ".join(said))


def _gemm_curve(table: pa.Table, n: int, k: int) -> Curve:
    found = _where(table, n=n, k=k)
    if not found.num_rows:
        raise NoSuchTimesError(f"no matrix of {n} columns and {k} rows was measured")
    # A size that was measured with several kernels has the time of the fastest: what vLLM would pick.
    m, place = np.unique(found["m"].to_numpy(), return_inverse=True)
    fastest = np.full(len(m), np.inf)
    np.minimum.at(fastest, place, _seconds(found))
    return Curve(m.astype(np.float64), fastest)


def _neighbours(axis: Ints, value: int) -> tuple[int, ...]:
    """The point of an axis that a value is, or the two around it; the end where it lies beyond."""
    at = int(np.searchsorted(axis, value))
    if at < len(axis) and axis[at] == value:
        return (value,)
    if at in (0, len(axis)):
        return (int(axis[min(at, len(axis) - 1)]),)
    return int(axis[at - 1]), int(axis[at])


def _between(points: tuple[int, ...], values: list[Floats], value: int) -> Floats:
    """The values between two points of an axis, straight in log2 of axis and value; nan where either is."""
    if len(points) == 1:
        return values[0]
    low, high = np.log2(points[0]), np.log2(points[1])
    weight = (np.log2(value) - low) / (high - low)
    return np.asarray(np.exp2((1 - weight) * np.log2(values[0]) + weight * np.log2(values[1])))


def _attention(path: Path, wanted: AttentionKernel) -> Measured:
    types = BF16 if wanted.cache == "bfloat16" else wanted.cache
    table = _where(_table(path), head_dim=wanted.head_size, kv_cache_dtype=types)
    if "window_size" in table.schema.names:
        table = _where(table, window_size=0)
    if not table.num_rows:
        raise NoSuchTimesError(
            f"no attention over heads of {wanted.head_size} with a {wanted.cache} cache was measured on this GPU"
        )
    kv_heads, near = _heads(table, wanted)
    # KV heads are independent of one another: twice the heads are twice the requests.
    times = wanted.kv_heads / kv_heads
    query_heads = wanted.query_heads * kv_heads // wanted.kv_heads
    table = _where(table, num_key_value_heads=kv_heads)
    lengths = "isl" if wanted.phase == "prefill" else "step"
    batch = np.unique(table["batch_size"].to_numpy()).astype(np.float64)
    length = np.unique(table[lengths].to_numpy()).astype(np.float64)
    kernels: list[str] = []
    grids = [_grid(_where(table, num_heads=one), batch, length, lengths, kernels) for one in near]
    seconds = _between(near, grids, query_heads)
    said = [" and ".join(dict.fromkeys(kernels))]
    if len(near) > 1:
        said.append(f"query heads between {near[0]} and {near[1]}")
    if times > 1:
        said.append(f"{wanted.kv_heads} KV heads as {times:g} times the requests of {kv_heads}")
    i, j = np.nonzero(np.isfinite(seconds))
    # A decode's `step` is the context before it; with itself it is one more.
    own = 0 if wanted.phase == "prefill" else 1
    return Measured(batch[i] / times, length[j] + own, as_stored(seconds[i, j]), ", ".join(said))


def _heads(table: pa.Table, wanted: AttentionKernel) -> tuple[int, tuple[int, ...]]:
    """The most measured KV heads, at most as many as wanted, and the query heads beside them that lie nearest."""
    groups = np.unique(table["num_key_value_heads"].to_numpy()).tolist()
    for kv_heads in reversed([one for one in groups if one <= wanted.kv_heads]):
        queries, rest = divmod(wanted.query_heads * kv_heads, wanted.kv_heads)
        measured = np.unique(_where(table, num_key_value_heads=kv_heads)["num_heads"].to_numpy())
        if not rest and measured[0] <= queries <= measured[-1]:
            return kv_heads, _neighbours(measured, queries)
    raise NoSuchTimesError(
        f"no attention near {wanted.query_heads} query heads over {wanted.kv_heads} KV heads of {wanted.head_size} was "
        "measured on this GPU"
    )


def _grid(table: pa.Table, batch: Floats, length: Floats, lengths: str, kernels: list[str]) -> Floats:
    """The times over batch and length, nan where none was measured; adds the kernels taken to `kernels`."""
    grid = np.full((len(batch), len(length)), np.nan)
    sources = table["kernel_source"].to_pylist()
    rank = np.array([_rank(source) for source in sources])
    i = np.searchsorted(batch, table["batch_size"].to_numpy())
    j = np.searchsorted(length, table[lengths].to_numpy())
    seconds = _seconds(table)
    for row in np.argsort(rank, kind="stable"):
        if np.isnan(grid[i[row], j[row]]):
            grid[i[row], j[row]] = seconds[row]
            kernels.append(sources[row])
    return grid


def _rank(source: str) -> int:
    return next((place for place, name in enumerate(KERNELS) if name in source), len(KERNELS))


def _experts(path: Path, wanted: ExpertLayer) -> Measured:
    types = BF16 if wanted.weights == "bfloat16" else wanted.weights
    table = _where(
        _table(path),
        moe_dtype=types,
        hidden_size=wanted.hidden,
        inter_size=wanted.intermediate,
        topk=wanted.used,
        num_experts=wanted.number,
        moe_tp_size=wanted.gpus,
        moe_ep_size=1,
        distribution=ROUTING,
    )
    if not table.num_rows:
        raise NoSuchTimesError(
            f"no {wanted.weights} experts {wanted.intermediate} wide, {wanted.used} of {wanted.number}, behind "
            f"{wanted.hidden} over {wanted.gpus} GPUs were measured"
        )
    tokens, place = np.unique(table["num_tokens"].to_numpy(), return_inverse=True)
    fastest = np.full(len(tokens), np.inf)
    np.minimum.at(fastest, place, _seconds(table))
    return Measured(
        tokens.astype(np.float64), None, as_stored(fastest), f"{table['kernel_source'][0]}, routing {ROUTING}"
    )


def _all_reduce(path: Path, wanted: AllReduce) -> Measured:
    backend = "vllm_graph" if wanted.captured else "vllm_eager"
    table = _where(_table(path), num_gpus=wanted.gpus, backend=backend)
    if not table.num_rows:
        raise NoSuchTimesError(f"no all-reduce over {wanted.gpus} GPUs was measured")
    table = table.sort_by("message_size")
    sizes = table["message_size"].to_numpy().astype(np.float64)
    return Measured(sizes, None, as_stored(_seconds(table)), f"{backend} {path.parent.name}")
