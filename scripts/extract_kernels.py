"""Makes harness/profiles/kernels/tables/: the measured kernels of well-known models, out of the package that has all.

Run from the repository's root, where `pip install 'schedbench[kernels]'` was: python scripts/extract_kernels.py
The package's version is pinned (harness/profiles/kernels/package.py); what it lacks for a GPU is named and left out.
"""

from __future__ import annotations

import sys

from harness.core.errors import UserError
from harness.profiles.kernels.measured import TABLES, Measured, write_measured
from harness.profiles.kernels.operations import operations_of
from harness.profiles.kernels.package import PACKAGE, VERSION, NoSuchTimesError, from_package, installed
from harness.profiles.kernels.systems import SYSTEMS
from harness.profiles.models import find_model

# Models with the numbers of GPUs that share them.
MODELS: dict[str, tuple[int, ...]] = {
    "Qwen/Qwen3-1.7B": (1,),
    "Qwen/Qwen3-4B": (1,),
    "Qwen/Qwen3-8B": (1, 2),
    "Qwen/Qwen3-14B": (1, 2),
    "Qwen/Qwen3-32B": (1, 2, 4, 8),
    "Qwen/Qwen3-32B-FP8": (1, 2),
    "Qwen/Qwen3-30B-A3B": (1, 2),
    "Qwen/Qwen2.5-7B-Instruct": (1, 2),
    "Qwen/Qwen2.5-72B-Instruct": (1, 2, 4, 8),
    "meta-llama/Llama-3.1-8B": (1, 2),
    "meta-llama/Llama-3.1-70B": (1, 2, 4, 8),
    "mistralai/Mistral-7B-Instruct-v0.3": (1,),
    "mistralai/Mixtral-8x7B-v0.1": (1, 2, 4),
    "google/gemma-7b": (1,),
}
ABOUT = {
    "source": f"PyPI {PACKAGE} {VERSION}",
    "licence": "Apache-2.0, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES",
    "units": "x: tokens, elements, or requests; y: tokens of a prompt, or of context; seconds: s a call of one layer",
}


def main() -> None:
    data = installed()
    if data is None:
        sys.exit("pip install 'schedbench[kernels]' first: its tables are what this reads")
    for gpu, system in SYSTEMS.items():
        operations: dict[str, Measured] = {}
        missing: dict[str, str] = {}
        for model, parts in MODELS.items():
            shape = find_model(model)[1]
            assert shape is not None
            for tp in parts:
                for operation in operations_of(shape, tp):
                    if operation.name in operations:
                        continue
                    try:
                        operations[operation.name] = from_package(data, system, operation)
                    except NoSuchTimesError as error:
                        missing.setdefault(operation.name, f"{model}: {error}")
        path = TABLES / f"{gpu}.parquet"
        write_measured(path, operations, ABOUT | {"gpu": system.folder, "vllm": system.version})
        print(f"{path.name}: {len(operations)} kernels, {path.stat().st_size:,} bytes")
        for name, why in missing.items():
            print(f"  without {name} ({why})")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
