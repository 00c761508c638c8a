"""The servers that a run drives, by the names that their arms go by: one, or several in turn."""

from __future__ import annotations

import string

from harness.core.errors import UserError
from harness.core.text import one_line, shown
from harness.session.ask import split_policies
from harness.session.options import RunOptions

LABEL = "external"


def servers_of(options: RunOptions) -> dict[str, str]:
    """The URL of each arm by its name; UserError where names and servers do not fit together.

    One --url goes by --policy, or as `external`; several by as many policies, or as a, b, …; --arm NAME=URL names its
    own. The same URL may stand twice: a server against itself.
    """
    if options.arms and options.urls:
        raise UserError("--arm names a server and its URL: leave out --url, or give every server by --arm NAME=URL")
    if options.arms and options.policies:
        raise UserError("--arm names what runs on each server: leave out --policy")
    if options.arms:
        return _named(options.arms)
    names = split_policies(options.policies)
    if len(options.urls) < 2:
        if len(names) > 1:
            raise UserError(
                "--engine endpoint drives the one server that runs there: give one --policy and one --gpu to label it, "
                "or a --url for each policy"
            )
        return dict.fromkeys(names or (LABEL,), options.urls[0])
    names = names or list(string.ascii_lowercase[: len(options.urls)])
    if len(names) != len(options.urls) or len(set(names)) < len(names):
        raise UserError(
            f"{len(options.urls)} servers and {len(names)} policies ({', '.join(map(one_line, names))}): give each "
            "--url a --policy of its own, or name them with --arm NAME=URL"
        )
    return dict(zip(names, options.urls, strict=True))


def _named(arms: tuple[str, ...]) -> dict[str, str]:
    servers: dict[str, str] = {}
    for text in arms:
        name, sign, url = text.partition("=")
        name = name.strip()
        if not sign or not name or "/" in name or not name.isprintable():
            raise UserError(f"--arm {shown(text)}: write NAME=URL, such as before=http://127.0.0.1:8000")
        if split_policies([name]) != [name]:
            raise UserError(f"--arm {shown(text)}: a name with a comma is two names: take another character")
        if name in servers:
            raise UserError(f"--arm {shown(text)}: {name} names a server already: give each a name of its own")
        servers[name] = url
    return servers
