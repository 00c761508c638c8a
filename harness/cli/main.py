"""The command line: the group of all commands, and the exit code that each end of one has."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterable

import click

from harness import __version__
from harness.cli.calibrate import calibrate
from harness.cli.capacity import capacity
from harness.cli.catalogs import list_gpus, list_policies, list_workloads
from harness.cli.compare import compare
from harness.cli.driving import doctor, mock_server
from harness.cli.engine import engines
from harness.cli.exchange import export_run, import_results
from harness.cli.grid import grid
from harness.cli.other_tools import ours_for
from harness.cli.policy import policy
from harness.cli.profit import profit
from harness.cli.regret import regret
from harness.cli.report import report
from harness.cli.reproduce import reproduce
from harness.cli.run import run
from harness.cli.runs import list_runs, publish, recover, show, verify
from harness.cli.site import site
from harness.cli.spread import aa, power
from harness.cli.tables import expand, thin
from harness.cli.trace import trace
from harness.cli.validate import validate
from harness.core.apart import go_apart, too_much_memory
from harness.core.errors import USER_ERRORS, Interrupted, NotMet, RunFailed
from harness.core.terminal import show_controls

EXIT_NOT_MET, EXIT_USER, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 3, 130
COMMANDS = [
    run,
    grid,
    capacity,
    compare,
    aa,
    power,
    show,
    list_runs,
    recover,
    verify,
    publish,
    thin,
    expand,
    import_results,
    export_run,
    profit,
    regret,
    report,
    calibrate,
    validate,
    trace,
    reproduce,
    list_policies,
    policy,
    list_workloads,
    list_gpus,
    site,
    engines,
    doctor,
    mock_server,
]
# What others made is read in a process of its own.
READERS = frozenset(
    {"show", "list", "recover", "verify", "publish", "compare", "power", "profit", "calibrate", "validate", "trace"}
    | {"import", "export", "site build", "site check"}
)
# It starts an engine, which is to have the whole machine.
MEASURING = "calibrate attention"
# With `color` click leaves texts whole: what a terminal would obey in them is shown at its door.
HELP = ["-h", "--help"]
CONTEXT = {"help_option_names": HELP, "show_default": True, "max_content_width": 100, "color": True}


@click.group(commands=COMMANDS, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="bench")
def bench() -> None:
    """Does scheduler policy A really beat policy B, on this GPU, for this traffic, and by how much?"""


def _hide_empty_defaults(commands: Iterable[click.Command]) -> None:
    """A default of no text at all says nothing in a help text."""
    for command in commands:
        for option in command.params:
            if isinstance(option, click.Option) and option.default == "":
                option.show_default = False
        if isinstance(command, click.Group):
            _hide_empty_defaults(command.commands.values())


_hide_empty_defaults(COMMANDS)


def main() -> None:
    """Runs the command line and exits with the contract's codes: 0, 1, 2, 3 or 130."""
    _usable_streams()
    if _reads_strangers(sys.argv[1:]):
        go_apart()
    sys.exit(_exit_code())


def _usable_streams() -> None:
    """Closed streams go nowhere; a character that the terminal cannot show, or would obey, is written as its code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - lives as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    show_controls()


def _reads_strangers(words: list[str]) -> bool:
    """Whether a command reads runs or traces that others made, and asks for no help alone."""
    names = {" ".join(words[:1]), " ".join(words[:2])}
    return bool(names & READERS) and MEASURING not in names and not set(HELP).intersection(words)


def _exit_code() -> int:
    try:
        for argument in sys.argv:
            if not argument.isprintable():
                raise click.UsageError(f"{argument!a}: a name with control characters or not in UTF-8: rename it")
        bench(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        return _say(error.format_message(), EXIT_USER)
    except click.NoSuchOption as error:
        return _say(_no_such_option(error), EXIT_USER)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "bench"
        return _say(f"bench: {error.format_message()} (`{path} --help` lists the options)", EXIT_USER)
    except click.ClickException as error:
        return _say(f"bench: {error.format_message()}", EXIT_USER)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Interrupted as error:
        return _say(str(error), EXIT_INTERRUPTED) if str(error) else EXIT_INTERRUPTED
    except NotMet as error:
        return _say(str(error), EXIT_NOT_MET)
    except USER_ERRORS as error:
        return _say(f"bench: {error}", EXIT_USER)
    except RunFailed as error:
        return _say(f"bench: {error}", EXIT_FAILED)
    except (BrokenPipeError, SystemExit):
        # The reader (`head`, a pager) has had enough (rich turns that into SystemExit); the rest has nowhere to go.
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        return _say(f"bench: {error.filename or 'standard output'}: {error.strerror or error}", EXIT_USER)
    except MemoryError:
        return _say(f"bench: {too_much_memory()}", EXIT_USER)
    except Exception as error:
        if isinstance(error, ImportError) and _NO_ROOM.search(str(error)):
            return _say(f"bench: {too_much_memory()}", EXIT_USER)
        if os.environ.get("BENCH_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError) and not _is_ours(error.name or ""):
            return _say(
                f"bench: the installation lacks {error.name}: `make setup` or pip install --force-reinstall "
                "schedbench, makes it whole",
                EXIT_USER,
            )
        kind = type(error).__name__
        return _say(
            f"bench: a fault of bench itself ({kind}: {error}); please report it with what BENCH_DEBUG=1 adds",
            EXIT_FAILED,
        )
    return 0


def _is_ours(module: str) -> bool:
    """Whether a module is part of bench itself."""
    return module.split(".", maxsplit=1)[0] in ("harness", "policies", "workloads", "schedbench")


# What the loader says of a library that finds no memory.
_NO_ROOM = re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE)


def _no_such_option(error: click.NoSuchOption) -> str:
    """The line for an option that bench does not have; other tools' users are told which of ours it is."""
    context = error.ctx
    options = [option for one in context.command.params for option in one.opts] if context is not None else []
    hint = ours_for(error.option_name, options)
    path = context.command_path if context is not None else "bench"
    said = f"no option {error.option_name}{f': {hint}' if hint else ''}"
    return f"bench: {said} (`{path} --help` lists the options)"


def _say(line: str, code: int) -> int:
    with contextlib.suppress(OSError):
        click.echo(line, err=True, color=True)
    return code


def _drop_output() -> None:
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
