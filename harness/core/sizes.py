"""The limits of what is read, in one place: beyond them nothing is of bench's making, and a small file fills a machine.

docs/limits.md names them. What bench writes keeps within them, so that it can be read.
"""

from __future__ import annotations

# Rows of a run's tables, and bytes of one as it lies in memory.
MOST_REQUESTS = 2_000_000
MOST_STEPS = 2_400_000
MOST_TABLE_BYTES = 2**30
# A batch of rows in the log of a run under way.
MOST_BATCH_BYTES = 2**29
# A run's own JSON.
MOST_JSON_BYTES = 2**24
# What a command that reads runs and traces of strangers may take: besides what its libraries set aside for each core.
READER_BYTES = 2**32
READER_BYTES_A_CORE = 2**27
READER_CPU_S = 3600
