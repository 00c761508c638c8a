"""Where the repository lies, and the folder beside it that not every checkout has."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
