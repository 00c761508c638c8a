"""How an answer ended: well, or in which way not."""

from __future__ import annotations

from collections.abc import Collection

from harness.drive.openai_stream import Answer


def conclude(
    answer: Answer, expected: int | None, ignore_eos: bool, accept: Collection[str] = ()
) -> tuple[str, str | None]:
    """How a whole answer to a request for `expected` tokens ended: its finish and, of a failure, `name: detail`.

    What `accept` names, of `no_done` and `no_usage`, is no failure.
    """
    tokens = answer.output_tokens
    if answer.error:
        return "error", answer.error
    if answer.finish_reason in ("abort", "error", "content_filter"):
        return "error", f"{answer.finish_reason}: the server's finish_reason"
    if not answer.stamps:
        if answer.usage:
            return "error", f"no_tokens: usage says {tokens} tokens, and no event shows or counts one"
        said = answer.said()
        return "error", f"no_tokens: the answer has no token{f': {said}' if said else ''}"
    if not answer.done and not ("no_done" in accept and answer.finish_reason and answer.usage is not None):
        return "error", "no_done: the stream ended without [DONE]"
    if answer.usage is None and "no_usage" not in accept:
        return "error", "no_usage: the server gave no usage; output_tokens counts events"
    if expected and tokens > expected:
        several = f" in {answer.choices} choices" if answer.choices > 1 else ""
        return "error", f"overlong: {tokens} tokens{several} where {expected} were asked for"
    if expected and tokens < expected and (ignore_eos or answer.finish_reason == "length"):
        return "short", f"short: {tokens} tokens where {expected} were asked for"
    reached = answer.finish_reason == "length" or (answer.finish_reason is None and tokens == expected)
    return ("length" if reached else "stop"), None
