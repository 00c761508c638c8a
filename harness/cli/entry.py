"""The console script: as little as can be between the process's start and its first handler for Ctrl-C."""

import sys


def main() -> None:
    """Runs the command line; Ctrl-C while it is still being imported is no traceback either."""
    try:
        from harness.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()
