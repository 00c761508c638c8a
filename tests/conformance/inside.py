"""What can only be tried beside vLLM: run by the engine's Python, it writes {scenario: null or what went wrong}.

A scenario is a function of one of these modules whose name begins with `it_`.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from tests.conformance import inside_faults, inside_plans, inside_setup


def main() -> None:
    results: dict[str, str | None] = {}
    for module in (inside_plans, inside_faults, inside_setup):
        for name, scenario in vars(module).items():
            if name.startswith("it_"):
                try:
                    scenario()
                    results[name] = None
                except Exception:
                    results[name] = traceback.format_exc()
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
