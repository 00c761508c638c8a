"""A hub of a few small data sets on this machine, as the client of the Hugging Face hub speaks to one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_open_sesame"  # noqa: S105 - of the fake hub alone


def revision_of(files: dict[str, bytes]) -> str:
    """A commit's name: 40 hex digits that the files decide."""
    return hashlib.sha1(repr(sorted(files.items())).encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class FakeRepository:
    """A data set by its files; a gated one sends them to those who have `TOKEN` only."""

    files: dict[str, bytes]
    gated: bool = False
    refs: tuple[str, ...] = ("main",)
    sha: str = ""

    def __post_init__(self) -> None:
        self.sha = revision_of(self.files)


@dataclass(slots=True)
class FakeHub:
    """The repositories, the address, and every request so far as `METHOD PATH`."""

    repositories: dict[str, FakeRepository] = field(default_factory=dict)
    url: str = ""
    requests: list[str] = field(default_factory=list)
    # Requests for a file's content after which the hub hangs up without a word.
    dies_after: int | None = None


def folder_of(path: Path) -> dict[str, bytes]:
    """The files of a folder by their names in it."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_: Any) -> None:
        pass

    def _send(self, status: int, body: bytes = b"", /, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.get("length", str(len(body))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), Content_Type="application/json")

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, X_Error_Code=code, X_Error_Message=code)

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        path = unquote(urlsplit(self.path).path)
        # Of itself the client asks for this once a process.
        if path != "/api/agent-harnesses":
            self.hub.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "datasets"]:
            self._api("/".join(parts[2:4]), parts[4:], body)
        elif parts[0] == "datasets" and "resolve" in parts:
            self._file("/".join(parts[1:3]), parts[4], "/".join(parts[5:]))
        else:
            self._refuse(404, "EntryNotFound")

    do_GET = do_HEAD = do_POST = _answer

    def _at(self, name: str, revision: str) -> FakeRepository | None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            # What the hub says of ids that it does not know, or not to a stranger.
            self._refuse(401, "RepoNotFound")
        elif revision not in (*repository.refs, repository.sha):
            self._refuse(404, "RevisionNotFound")
        else:
            return repository
        return None

    def _api(self, name: str, rest: list[str], body: bytes) -> None:
        if rest == ["refs"]:
            found = self._at(name, "main")
            if found:
                branches = [{"name": ref, "ref": f"refs/heads/{ref}", "targetCommit": found.sha} for ref in found.refs]
                self._json({"branches": branches, "tags": [], "converts": []})
            return
        found = self._at(name, rest[1] if len(rest) > 1 else "main")
        if found is None:
            return
        if rest[:1] in ([], ["revision"]):
            siblings = [{"rfilename": file} for file in found.files]
            self._json({"id": name, "sha": found.sha, "siblings": siblings, "gated": "auto" if found.gated else False})
        elif rest[0] == "tree":
            recursive = parse_qs(urlsplit(self.path).query).get("recursive", [""])[0].lower() in ("true", "1")
            self._tree(found, "/".join(rest[2:]), recursive)
        elif rest[0] == "paths-info":
            asked = parse_qs(body.decode()).get("paths", [])
            self._json([entry for path in asked for entry in self._entries(found) if entry["path"] == path])
        else:
            self._refuse(404, "EntryNotFound")

    @staticmethod
    def _entries(repository: FakeRepository) -> list[dict[str, Any]]:
        folders = {str(above) for file in repository.files for above in Path(file).parents} - {"."}
        held = [
            {
                "type": "file",
                "path": file,
                "size": len(content),
                "oid": hashlib.sha1(content, usedforsecurity=False).hexdigest(),
            }
            for file, content in repository.files.items()
        ]
        return held + [{"type": "directory", "path": path, "size": 0, "oid": "0" * 40} for path in sorted(folders)]

    def _tree(self, repository: FakeRepository, under: str, recursive: bool) -> None:
        entries = self._entries(repository)
        if under and not any(entry["path"] == under for entry in entries):
            self._refuse(404, "EntryNotFound")
            return
        inside = [entry for entry in entries if not under or entry["path"].startswith(f"{under}/")]
        if not recursive:
            depth = under.count("/") + 1 if under else 0
            inside = [entry for entry in inside if entry["path"].count("/") == depth]
        self._json(inside)

    def _file(self, name: str, revision: str, file: str) -> None:
        found = self._at(name, revision)
        if found is None:
            return
        if found.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo")
            return
        if file not in found.files:
            self._refuse(404, "EntryNotFound")
            return
        content = found.files[file]
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X_Repo_Commit": found.sha,
            "Accept_Ranges": "bytes",
        }
        if self.command == "HEAD":
            self._send(200, length=str(len(content)), **headers)
            return
        if self.hub.dies_after is not None:
            self.hub.dies_after -= 1
            if self.hub.dies_after < 0:
                self.close_connection = True
                self.connection.close()
                return
        asked = self.headers.get("Range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            end = min(int(last) + 1 if last else len(content), len(content))
            part = content[int(first) : end]
            self._send(206, part, Content_Range=f"bytes {first}-{end - 1}/{len(content)}", **headers)
            return
        self._send(200, content, **headers)


@contextmanager
def running(**repositories: FakeRepository) -> Iterator[FakeHub]:
    """A hub that serves until the block ends; names are written `owner__name`."""
    hub = FakeHub({name.replace("__", "/"): repository for name, repository in repositories.items()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
