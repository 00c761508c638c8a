"""What a word on a page means, for those who point at it."""

from __future__ import annotations

from harness.pages.boards import Board
from harness.pages.fidelity import signs_of
from harness.report.support import AGREED, BAND, CLEAR, DISAGREE, LIKELY, SUPPORTED

KINDS = {
    "measured": "A real engine served every request, timed by a client that says how late it was itself.",
    "emulated": "vLLM’s own scheduler took every decision, in virtual time; what a step costs comes from a model.",
    "simulated": "A virtual-time engine that follows vLLM’s rules step by step, with a model of what a step costs.",
    "reported": "A figure that somebody published. Nobody ran it here.",
}
LEVELS = {
    "VALID": "No check found anything against these runs.",
    "DEGRADED": "A check found something that weakens these runs; each run’s page says what.",
    "INVALID": "A check found these runs not to be trusted: shown, never ranked.",
    "NONE": "Nobody could check it.",
}
SUPPORT = {
    SUPPORTED: f"Three models of step costs agree on the sign, each beyond {CLEAR:g} %.",
    LIKELY: f"The models of step costs agree on the sign, each beyond {AGREED:g} %.",
    DISAGREE: "The models of step costs do not agree on the sign: only a measurement can tell.",
}
# The mark of each in a cell of the first page: the fuller, the more to be believed.
MARKS = {
    "measured": "●",
    "emulated": "◕",
    SUPPORTED: "◑",
    LIKELY: "◔",
    "simulated": "○",
    DISAGREE: "○",
    "reported": "□",
}
TRUST = {**KINDS, **SUPPORT}


def kind_title(board: Board) -> str:
    """What a board's kind means, and of a simulated one how far published gains lay from such."""
    words = [KINDS[board.kind]]
    if board.kind in ("simulated", "emulated"):
        costs = board.reference.first.run.manifest.get("provenance", {}).get("cost_model", {})
        if isinstance(costs, dict) and costs.get("name"):
            words.append(f"Step costs: {costs['name']}.")
        words.append(signs_of(board))
        words.append(f"Published gains lay within {BAND:g} points of the models’ mean in 80 % of the cells.")
    if board.is_twin:
        words.append("Twin lengths: drawn from a data set’s published statistics.")
    return " ".join(filter(None, words))
