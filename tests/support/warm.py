"""Processes of `bench` forked from one that has imported it: each its own, from its streams to its exit code.

Of a command that does little, importing takes most of the time. Python's seed of hashes is the same in all of them:
what is about that, or about how a process starts or is stopped, starts `bench` itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import harness.cli.entry

# What most commands import; nothing that reads its environment then.
LIBRARIES = ("harness.cli.main", "harness.session.session", "harness.report.curve", "pyarrow.dataset", "scipy.special")
MOST_BYTES = 1 << 17


class Warm:
    """The process that has imported `bench`; `run` forks it, one command after the other."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import main; main({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def run(self, words: list[str], cwd: Path, env: dict[str, str], limit_bytes: int | None) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a command line; a file may have `limit_bytes`."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            request = json.dumps([words, str(cwd), env, limit_bytes]).encode()
            socket.send_fds(self._socket, [request], [out.fileno(), err.fileno()])
            code = int(self._socket.recv(64))
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            # The command of a test that took too long is still at work.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def next_command(channel: socket.socket) -> list[str]:
    """The words of a command, in a child that has its place, environment, streams and limit; ends with the socket."""
    while True:
        request, streams, _, _ = socket.recv_fds(channel, MOST_BYTES, 2)
        if not request:
            sys.exit(0)
        words, cwd, env, limit_bytes = json.loads(request)
        child = os.fork()
        if child == 0:
            channel.close()
            for stream, number in zip(streams, (1, 2), strict=True):
                os.dup2(stream, number)
                os.close(stream)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            if limit_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
            return list(words)
        for stream in streams:
            os.close(stream)
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def main(descriptor: int) -> None:
    """Imports, takes requests from a socket, each with a file for either stream, and sends exit codes back."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    sys.argv = next_command(socket.socket(fileno=descriptor))
    # From here on as the console script.
    harness.cli.entry.main()
