"""The model's chat template: where it stands beside the tokenizer, and messages rendered by it as a server does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled
from workloads.text.tokenizer import OWN_QWEN, beside

if TYPE_CHECKING:
    import jinja2

Message = dict[str, str]

CONFIG, OWN_FILE = "tokenizer_config.json", "chat_template.jinja"
# What `strftime_now` tells, so that a trace has the same prompts on every day.
TODAY = datetime(2024, 7, 26, tzinfo=UTC)
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A compiled template with the special tokens it may name, the file it was found in and its sha256 (hex).

    `sha256` is of everything that decides what is rendered: the template's text and the special tokens.
    """

    file: str
    sha256: str
    tokens: Message
    compiled: jinja2.Template

    def render(self, messages: Sequence[Message], where: str) -> str:
        """The text of these messages with the model's turn opened at its end; WorkloadError names `where` it fails."""
        try:
            text = self.compiled.render(
                messages=list(messages), tools=None, documents=None, add_generation_prompt=True, **self.tokens
            )
            text.encode()
        except Exception as error:  # a template raises what it likes
            raise WorkloadError(
                f"{where}: the chat template of {self.file} fails on it ({_line(error)}): "
                "give the tokenizer of another model, or leave out template=true"
            ) from None
        return text


def load_template(spec: str, model: str, before: str = "") -> ChatTemplate:
    """The chat template beside a tokenizer's tokenizer.json (`spec` as workloads.text.tokenizer reads it).

    chat_template.jinja goes before the config's `chat_template`, a text or a list of named ones of which `default` is
    taken. Raises WorkloadError, one line that says what to give (after `before`), where there is none that can be read.
    """
    name = spelled(spec or model, 120)
    remedy = f"give {before}tokenizer=FOLDER of a model that chats, or leave out template=true"
    if spec == OWN_QWEN:
        raise WorkloadError(f"tokenizer=qwen is a vocabulary without a chat template: {remedy}")
    own = beside(spec, model, OWN_FILE)
    config = _config(beside(spec, model, CONFIG, remedy), name, remedy)
    file = CONFIG if own is None else OWN_FILE
    text = _named(config.get("chat_template")) if own is None else own
    if text is None:
        raise WorkloadError(
            f"{name}: no chat template: no {OWN_FILE} beside its tokenizer.json, "
            f"and no chat_template in its {CONFIG}: {remedy}"
        )
    texts_of_tokens = {special: _token(config.get(special)) for special in _SPECIAL}
    tokens = {special: token for special, token in texts_of_tokens.items() if token is not None}
    try:
        text = text.decode() if isinstance(text, bytes) else text
        sha = hashlib.sha256(json.dumps([text, tokens], ensure_ascii=False, sort_keys=True).encode()).hexdigest()
        compiled = _environment().from_string(text)
    except Exception as error:  # jinja2's compiler lets errors of Python's through
        raise WorkloadError(
            f"{name}: the chat template of its {file} cannot be read ({_line(error)}): {remedy}"
        ) from None
    return ChatTemplate(file, sha, tokens, compiled)


def _line(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0] or type(error).__name__
    number = getattr(error, "lineno", None)
    return spelled(f"line {number}: {first}" if number else first, 120)


def _config(content: bytes | None, name: str, remedy: str) -> dict[str, Any]:
    try:
        config = json.loads(content) if content is not None else {}
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise WorkloadError(f"{name}: its {CONFIG} is no JSON object: {remedy}")
    return config


def _named(given: Any) -> str | None:
    """The template of a config: its text, or of named ones the default."""
    if isinstance(given, list):
        named = {template.get("name"): template.get("template") for template in given if isinstance(template, dict)}
        given = named.get("default")
    return given if isinstance(given, str) else None


def _token(given: Any) -> str | None:
    """A special token's text, written plainly or as an added token."""
    if isinstance(given, dict):
        given = given.get("content")
    return given if isinstance(given, str) else None


def _environment() -> jinja2.Environment:
    """What templates are written for: blocks trimmed, loop controls, nothing of Python's reachable."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what a model said, for training: here its content as it is."""

        tags = {"generation"}  # noqa: RUF012 - the base class has it so

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **given: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **given)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = TODAY.strftime
    return environment
