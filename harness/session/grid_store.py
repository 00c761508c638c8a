"""A grid whose --out is a store: its runs are made in bench's cache, and sent there as each ends."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from harness.core.errors import UserError
from harness.core.masking import mask
from harness.published.publish import AlreadyPublished
from harness.published.store import Store, bring, folder_of, publish_to
from harness.runs.run import find_runs, load_run


class GridStore:
    """What a grid sends to the store at `url`: `begin`, `send` each run that ends, `end`.

    Runs lie in `folder` first, so that what could not be sent goes with the next command. UserError where the store
    cannot be reached before the grid.
    """

    def __init__(self, url: str) -> None:
        self.folder = folder_of(url, "-grid")
        # As it may be shown.
        self.name = mask(url)
        self._url = url
        # One after the other beside the cells, which need not wait for it.
        self._sender = ThreadPoolExecutor(1)
        self._under_way: list[Future[None]] = []

    def begin(self, running: bool = True) -> None:
        """Brings what the store has, so that it does not run again; where cells will run, sends what was left here."""
        store = Store(self._url)
        there = store.sums()
        if running and self.folder.is_dir():
            for run in find_runs(self.folder):
                if run.relative_to(self.folder).as_posix() not in there and load_run(run).status == "complete":
                    self._send(run)
            there = store.sums()
        bring(store, there, self.folder)

    def send(self, run: Path) -> None:
        """Sends a run that has ended, soon."""
        self._under_way.append(self._sender.submit(self._send, run))

    def end(self) -> str | None:
        """Waits until all is sent; a line where something could not be."""
        reasons = [str(error) for one in self._under_way if (error := one.exception()) is not None]
        self._sender.shutdown()
        if not reasons:
            return None
        runs = "1 run is" if len(reasons) == 1 else f"{len(reasons):,} runs are"
        return f"{runs} not in the store yet, the same command sends what is left: {reasons[0]}"

    def _send(self, run: Path) -> None:
        try:
            publish_to(run, self._url)
        except AlreadyPublished:
            # Another machine ran it meanwhile, or this one sent it before it was stopped.
            pass
        except OSError as error:
            raise UserError(f"{error.filename or run}: cannot be read or written ({error.strerror or error})") from None
