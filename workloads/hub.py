"""One file from the Hugging Face hub, or one line that says what to do instead."""

from __future__ import annotations

from pathlib import Path

from workloads.errors import WorkloadError

ANSWER_WITHIN_S = 4.0


def fetch(repo: str, name: str, *, kind: str, what: str, remedy: str) -> Path:
    """The local path of a hub file (kind `model` or `dataset`): from the hub's cache, else downloaded.

    Raises WorkloadError `cannot load WHAT (reason): REMEDY`, within seconds where there is no network.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

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
    except GatedRepoError:
        reason = "it is gated: accept its licence on its page and set HF_TOKEN"
    except RepositoryNotFoundError:
        reason = f"the hub has no {kind} of that name, or it is private and needs HF_TOKEN"
    except OfflineModeIsEnabled:
        reason = "HF_HUB_OFFLINE is set and it is not in the Hugging Face cache"
    except EntryNotFoundError:
        reason = f"{repo} has no {name}"
    except (LocalEntryNotFoundError, OSError):
        reason = "no network and not in the Hugging Face cache"
    except Exception as error:  # the hub's client lets errors of three libraries through
        network = any(word in type(error).__name__ for word in ("Connect", "Timeout", "Network"))
        reason = "no network" if network else f"the hub's answer: {type(error).__name__}"
        reason += " and not in the Hugging Face cache"
    raise WorkloadError(f"cannot load {what} ({reason}): {remedy}")
