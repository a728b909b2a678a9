"""Upload of a merged model to the Hugging Face hub."""

import logging
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # its HTTP library's; which one varies

_logger = logging.getLogger(__name__)


class PushFailed(ValueError):
    """The model was not uploaded; the message says why, and what to do."""


def push_to_hub(folder: Path, repo: str) -> str:
    """Upload every file of `folder` as one commit to the private model repository `owner/name`, which is made if
    necessary, and return the commit's address. Raises PushFailed when there is no login or no network, or the
    repository is public, because nothing is published without an explicit decision."""
    api = HfApi()
    try:
        api.create_repo(repo, private=True, exist_ok=True)
        if not api.model_info(repo).private:
            raise PushFailed(f"{repo} is public: make it private, or push the folder {folder} by hand")
        commit = api.upload_folder(folder_path=folder, repo_id=repo, commit_message="Merged model")
    except (HTTPError, OSError) as error:
        raise PushFailed(
            f"{folder} was not uploaded to {repo}: {error}. Log in with `hf auth login` (or set HF_TOKEN), make sure "
            "that the hub is reachable and HF_HUB_OFFLINE is not set, and run `sightline merge` with --push again"
        ) from error
    _logger.info("uploaded %s to %s", folder, commit.commit_url)
    return str(commit.commit_url)
