"""What the mock server did, a row a request: its own times are the truth that a client is judged by."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError

COLUMNS = (
    "seq,conn,nth_on_conn,request_id,arrival_s,start_s,first_s,last_s,end_s,"
    "prompt_tokens,output_tokens,fail,late_mean_us,late_max_us"
)


@dataclass(slots=True)
class ServedRequest:
    """A row of the log, one request; times are ns of `time.perf_counter_ns`, 0 where it has not come to that.

    `arrival` is when the last of the request was read from its socket, `start` when it got a slot, `first` and `last`
    are taken just before the first and the last token are written, `end` after all was written or it failed. `fail` is
    `500`, `429`, `cut` or `errevent` where the server failed on purpose, `client` where the client went away,
    `stop` where the server was stopped, else empty. `late` is how long after its due time each event was written.
    """

    seq: int
    conn: int
    nth_on_conn: int
    request_id: str
    arrival_ns: int
    prompt_tokens: int
    start_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    end_ns: int = 0
    output_tokens: int = 0
    fail: str = ""
    events: int = 0
    late_sum_ns: int = 0
    late_max_ns: int = 0

    def wrote(self, tokens: int, due_ns: int, now_ns: int) -> None:
        """Note an event of so many tokens, due then and written now."""
        self.first_ns = self.first_ns or now_ns
        self.last_ns = now_ns
        self.output_tokens += tokens
        self.events += 1
        late_ns = now_ns - due_ns
        self.late_sum_ns += late_ns
        self.late_max_ns = max(self.late_max_ns, late_ns)

    def cells(self) -> list[object]:
        """The row as `COLUMNS` has it: seconds with all nine decimals, so that no nanosecond is lost."""
        times = (self.arrival_ns, self.start_ns, self.first_ns, self.last_ns, self.end_ns)
        return [
            self.seq,
            self.conn,
            self.nth_on_conn,
            self.request_id,
            *(f"{ns // 10**9}.{ns % 10**9:09d}" if ns else "" for ns in times),
            self.prompt_tokens,
            self.output_tokens,
            self.fail,
            f"{self.late_sum_ns / max(self.events, 1) / 1e3:.1f}",
            f"{self.late_max_ns / 1e3:.1f}",
        ]


def write_log(path: Path, rows: list[ServedRequest]) -> None:
    """The rows as CSV, in the order of their arrival; UserError, one line, where the file cannot be written."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS.split(","))
    writer.writerows(row.cells() for row in rows)
    try:
        path.write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: the log cannot be written ({error.strerror}): give --log another path") from None
