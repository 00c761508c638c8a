"""Files from the Hugging Face hub, or one line that says what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workloads.core.errors import WorkloadError
from workloads.core.reading import shown

ANSWER_WITHIN_S = 4.0


def _reason(error: Exception, repo: str, kind: str, name: str) -> str:
    """Why the hub gave nothing, for the brackets of an error."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{shown(repo)}"
        return f"it is gated: accept its licence on its page and set HF_TOKEN; the page is {page}"
    if isinstance(error, RepositoryNotFoundError):
        return f"the hub has no {kind} of that name, or it is private and needs HF_TOKEN"
    if isinstance(error, RevisionNotFoundError):
        return "the hub has no such revision of it"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set and it is not in the Hugging Face cache"
    if isinstance(error, LocalEntryNotFoundError):
        return "no network and not in the Hugging Face cache"
    if isinstance(error, EntryNotFoundError):
        return f"{repo} has no {name}"
    if isinstance(error, OSError) and not hasattr(error, "response"):
        return "no network and not in the Hugging Face cache"
    # The hub's client lets errors of three libraries through.
    network = any(word in type(error).__name__ for word in ("Connect", "Timeout", "Network"))
    reason = "no network" if network else f"the hub's answer: {type(error).__name__}"
    return reason + " and not in the Hugging Face cache"


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
        raise WorkloadError(f"cannot load {what} ({_reason(error, repo, kind, name)}): {remedy}") from None


def fetch_files(
    repo: str,
    revision: str | None,
    pick: Callable[[list[str]], list[str]],
    whole: Callable[[list[str]], bool],
    *,
    remedy: str,
) -> tuple[Path, list[str]]:
    """The folder of a hub data set at one revision, and the files in it that `pick` takes of all it has.

    What the hub's cache holds is enough where `whole` says so; else the hub is asked and sends what is missing.
    Raises WorkloadError `cannot load REPO from the hub (reason): REMEDY`, within seconds where there is no network.
    """
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    failure = f"cannot load {shown(repo)}{f' at {shown(revision)}' if revision else ''} from the hub"
    kept: tuple[Path, list[str]] | None = None
    try:
        folder = Path(snapshot_download(repo, repo_type="dataset", revision=revision, local_files_only=True))
        kept = folder, pick([str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()])
        if whole(kept[1]):
            return kept
    except (LocalEntryNotFoundError, WorkloadError):
        # Not in the cache, or nothing of it that is data.
        pass
    except Exception as error:
        raise WorkloadError(f"{failure} ({shown(str(error).splitlines()[0])}): {remedy}") from None
    try:
        info = HfApi().dataset_info(repo, revision=revision, timeout=ANSWER_WITHIN_S)
        names = pick([file.rfilename for file in info.siblings or []])
        files = [Path(hf_hub_download(repo, name, repo_type="dataset", revision=info.sha)) for name in names]
    except WorkloadError:
        raise
    except Exception as error:
        if kept is not None:
            return kept
        raise WorkloadError(f"{failure} ({_reason(error, repo, 'dataset', 'such file')}): {remedy}") from None
    return files[0].parents[len(Path(names[0]).parts) - 1], names
