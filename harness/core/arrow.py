"""Arrow as the harness uses it: pyarrow imports pandas at the first list it meets, which costs 0.2 s and 70 MB."""

from __future__ import annotations

import sys

import pyarrow as pa


class _NotNow:
    """A finder that finds no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """None for any other name: the finders behind this one are asked."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is imported when a frame is asked for", name=name)


def without_pandas() -> None:
    """Lets pyarrow look for pandas once, in vain; who asks for a frame (`to_pandas`) gets one all the same."""
    if "pandas" in sys.modules:
        return
    finder = _NotNow()
    sys.meta_path.insert(0, finder)
    try:
        pa.array(["looks for pandas"])
    finally:
        sys.meta_path.remove(finder)
