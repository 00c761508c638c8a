"""Files from the Hugging Face hub, or one line that says what to do instead."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from pathlib import Path

from workloads.core.errors import WorkloadError
from workloads.core.options import suggest
from workloads.core.reading import spelled

ANSWER_WITHIN_S = 4.0


class HubRefusal(Exception):
    """Why the hub gave nothing: a text for the brackets of an error or a notice.

    `away`: the hub was not reached, so that a cache could have helped; `unknown`: it has nothing of that name.
    """

    def __init__(self, why: str, *, away: bool = False, unknown: bool = False) -> None:
        super().__init__(why)
        self.away, self.unknown = away, unknown

    def with_cache(self) -> str:
        """The reason, with the cache that did not help either."""
        return f"{self} and it is not in the Hugging Face cache" if self.away else str(self)


def _refusal(error: Exception, repo: str, kind: str, name: str) -> HubRefusal:
    """What an error of the hub's client means."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{spelled(repo)}"
        return HubRefusal(f"it is gated: accept its licence on its page and set HF_TOKEN; the page is {page}")
    if isinstance(error, RepositoryNotFoundError):
        return HubRefusal(f"the hub has no {kind} of that name, or it is private and needs HF_TOKEN", unknown=True)
    if isinstance(error, RevisionNotFoundError):
        return HubRefusal("the hub has no such revision of it")
    if isinstance(error, OfflineModeIsEnabled):
        return HubRefusal("HF_HUB_OFFLINE is set", away=True)
    if isinstance(error, LocalEntryNotFoundError):
        return HubRefusal("no network", away=True)
    if isinstance(error, EntryNotFoundError):
        return HubRefusal(f"{repo} has no {name}")
    if isinstance(error, OSError) and not hasattr(error, "response"):
        return HubRefusal("no network", away=True)
    if getattr(getattr(error, "response", None), "status_code", None) == 401:
        return HubRefusal("the hub does not know the token in HF_TOKEN")
    # The hub's client lets errors of three libraries through.
    network = any(word in type(error).__name__ for word in ("Connect", "Timeout", "Network"))
    return HubRefusal("no network" if network else f"the hub's answer: {type(error).__name__}", away=True)


def fetch(repo: str, name: str, *, kind: str, what: str, remedy: str) -> Path:
    """The local path of a hub file (kind `model` or `dataset`): from the hub's cache, else downloaded.

    Raises WorkloadError `cannot load WHAT (reason): REMEDY`, within seconds where there is no network.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repo, name, repo_type=kind, local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    except Exception as error:
        raise WorkloadError(f"cannot load {what} ({str(error).splitlines()[0]}): {remedy}") from None
    try:
        # A download tries again and again, half a minute in all, where nothing answers: ask once first.
        get_hf_file_metadata(hf_hub_url(repo, name, repo_type=kind), timeout=ANSWER_WITHIN_S)
        return Path(hf_hub_download(repo, name, repo_type=kind))
    except Exception as error:
        refusal = _refusal(error, repo, kind, name)
        raise WorkloadError(f"cannot load {what} ({refusal.with_cache()}): {remedy}") from None


@dataclass(frozen=True, slots=True)
class Published:
    """A data set on the hub at one revision (40 hex digits): the names of its files, and whether they are gated."""

    revision: str
    names: tuple[str, ...]
    gated: bool


@functools.lru_cache
def ask(repo: str, revision: str) -> Published:
    """What the hub says of a data set at a revision ("": its newest), once a process; HubRefusal within seconds."""
    from huggingface_hub import HfApi

    try:
        info = HfApi().dataset_info(repo, revision=revision or None, timeout=ANSWER_WITHIN_S)
    except Exception as error:
        refusal = _refusal(error, repo, "dataset", "such file")
        near = _near_revision(error, repo, revision)
        raise HubRefusal(f"{refusal}{near}", away=refusal.away, unknown=refusal.unknown) from None
    return Published(str(info.sha), tuple(file.rfilename for file in info.siblings or []), bool(info.gated))


def _near_revision(error: Exception, repo: str, revision: str) -> str:
    """` (did you mean X?)` where the hub has no such revision and one of a name that is near."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    if not isinstance(error, RevisionNotFoundError):
        return ""
    with contextlib.suppress(Exception):
        refs = HfApi().list_repo_refs(repo, repo_type="dataset")
        return suggest(revision, [ref.name for ref in (*refs.branches, *refs.tags)])
    return ""


def check_access(repo: str, published: Published) -> None:
    """HubRefusal where a gated data set's files are not for this user."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    data = [name for name in published.names if not name.startswith(".") and name != "README.md"]
    if not (published.gated and data):
        return
    try:
        url = hf_hub_url(repo, data[0], repo_type="dataset", revision=published.revision)
        get_hf_file_metadata(url, timeout=ANSWER_WITHIN_S)
    except Exception as error:
        raise _refusal(error, repo, "dataset", data[0]) from None


def snapshot(repo: str, revision: str) -> Path | None:
    """The folder of a data set in the hub's cache at a revision ("": the newest it knows); None where there is none.

    It may hold some of the data set's files only.
    """
    from huggingface_hub import snapshot_download

    # Not there, not whole as far as the cache knows, or a cache that cannot be read.
    with contextlib.suppress(Exception):
        return Path(snapshot_download(repo, repo_type="dataset", revision=revision or None, local_files_only=True))
    return None
