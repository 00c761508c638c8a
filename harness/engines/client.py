"""How a server is driven: what a user may set of the client."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.core.errors import UserError
from harness.core.text import shown
from harness.drive.bodies import NEEDED, BodyForm


@dataclass(frozen=True, slots=True)
class Client:
    """How the server is driven; what decides the numbers of it stands in the spec's `client`.

    `prompts` is ids, text (seeded words) or dataset (the data set's own text). `vocabulary` None means the
    tokenizer's, the server's or an assumed one; `tokenizer` as workloads/text/tokenizer.py reads it. `form` is what
    bodies are like, `accept` what an answer may lack (`openai_stream.conclude`).
    """

    api: str = "completions"
    prompts: str = "ids"
    ignore_eos: bool = True
    timeout_s: float | None = 3600.0
    first_token_timeout_s: float | None = None
    processes: int = 1
    warmup: int = 4
    retries_429: int = 0
    vocabulary: int | None = None
    tokenizer: str = ""
    form: BodyForm = field(default_factory=BodyForm)
    accept: tuple[str, ...] = ()

    def decides(self) -> dict[str, Any]:
        """The part that a comparison must find equal; what came later stands there only where it was asked for."""
        values = dataclasses.asdict(self)
        later = values.pop("form") | {"accept": values.pop("accept")}
        usual = dataclasses.asdict(BodyForm()) | {"accept": ()}
        values |= {name: value for name, value in later.items() if value != usual[name]}
        return {name: value for name, value in values.items() if name != "processes"}


def read_form(length_field: str, fields: Iterable[str], left_out: Iterable[str]) -> BodyForm:
    """The form of a body from `NAME=VALUE` texts, a VALUE being JSON or else text; UserError where one is off."""
    values: dict[str, Any] = {}
    for one in fields:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise UserError(f"--field {shown(one)}: give NAME=VALUE, such as temperature=0.7")
        try:
            values[name] = orjson.loads(text)
        except orjson.JSONDecodeError:
            values[name] = text
    form = BodyForm(length_field, values, tuple(left_out))
    for option, names in (("--field", values), ("--no-field", form.left_out), ("--length-field", (length_field,))):
        for name in names:
            if name in NEEDED:
                raise UserError(f"{option} {name}: no request for a stream is without our own: leave it")
    return form
