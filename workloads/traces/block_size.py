"""How many tokens a hash id stands for: as the file or the user says, else as the lengths of its rows tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core.blocks import Blocks, misfit
from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled
from workloads.core.trace import Ints
from workloads.traces.file_options import FileOptions

# Mooncake's, and what is taken where the rows do not speak against it.
BLOCK_TOKENS = 512
# Engines have blocks of a power of two.
_SIZES = (BLOCK_TOKENS, *(1 << power for power in range(3, 17) if 1 << power != BLOCK_TOKENS))


def blocks_of(
    path: Path,
    rows: Sequence[tuple[int, Sequence[Any]]],
    prompt_tokens: Ints,
    given: FileOptions,
    source: dict[str, Any],
) -> Blocks:
    """The blocks of rows (number in the file, hash_ids); what there is to say of their size joins the source.

    Raises WorkloadError, naming file and row, where ids do not fit their prompt.
    """
    ids = tuple(tuple(row) for _, row in rows)
    size, notice = block_size(spelled(path.name), ids, prompt_tokens, given.block)
    for (number, row), length in zip(rows, prompt_tokens.tolist(), strict=True):
        why = "a hash_id is missing" if None in row else misfit(row, length, size)
        if why:
            raise WorkloadError(f"{spelled(path)}, row {number}: {why}")
    if notice:
        source["notices"] = [*source.get("notices", ()), notice]
    return Blocks(ids, size)


def block_size(file: str, ids: Sequence[Sequence[int]], prompt_tokens: Ints, given: int) -> tuple[int, str | None]:
    """The size of a block in tokens, and a line to say where it is other than 512 or not sure.

    A prompt of L tokens has ⌈L / size⌉ ids, or ⌊L / size⌋ where only whole blocks have one. Sizes that fit no row are
    left to who checks the rows.
    """
    if given:
        return given, None
    counts = np.fromiter(map(len, ids), np.int64, len(ids))
    for size in _SIZES:
        for blocks in (-(-prompt_tokens // size), prompt_tokens // size):
            if np.array_equal(counts, blocks):
                why = f"{file}: its hash_ids are of blocks of {size} tokens, as the prompts' lengths tell"
                return size, None if size == BLOCK_TOKENS else why
    odd = f"{file}: its hash_ids fit the prompts' lengths with no one size of block: {BLOCK_TOKENS} tokens are taken"
    return BLOCK_TOKENS, f"{odd}; block=N says another"
