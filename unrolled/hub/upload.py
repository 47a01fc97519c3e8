"""A model file and its card to the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unrolled.errors import UserError
from unrolled.hub.address import FILE, HUB, Address
from unrolled.hub.client import hub_api, hub_client, hub_errors

CARD = "README.md"
MESSAGE = "A model of unrolled"  # of the commit


def check_repo(repo: str) -> str:
    """The name of a repository to push to: ORG/NAME, with or without hub:."""
    address = Address.parse(repo if repo.startswith(HUB) else HUB + repo)
    if address.file is not None or address.revision is not None:
        raise UserError(f"{repo!r} is more than a repository.", "Give ORG/NAME; a branch is given with --revision.")
    return address.repo


def push(
    file: Path,
    repo: str,
    card: str | None,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str = MESSAGE,
    force: bool = False,
) -> str:
    """Upload a model file and its card as one commit, and return the commit's address.

    The repository is made if it does not exist. A card that is there already and differs stays, with an error, unless
    `force`. None: no card.
    """
    client, api, repo = hub_client(), hub_api(), check_repo(repo)
    with hub_errors(f"{HUB}{repo}"):
        if card is not None:
            _check_header(client, card)
            if not force:
                _check_card(client, api, repo, revision, card)
        api.create_repo(repo, private=private or None, exist_ok=True)
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        operations = [client.CommitOperationAdd(FILE, str(file))]
        if card is not None:
            operations.append(client.CommitOperationAdd(CARD, card.encode()))
        commit = api.create_commit(repo, operations, commit_message=message, revision=revision)
    return str(commit.commit_url)


def _check_header(client: Any, card: str) -> None:
    """Raise an error if the hub refuses the card's header, before a repository is made."""
    try:
        client.ModelCard(card).validate()
    except ValueError as error:
        reason = "; ".join(line.strip(" -") for line in str(error).splitlines() if line.strip())[:500]
        raise UserError(f"The hub refuses the card: {reason}.", "Change the licence, language or datasets.") from None


def _check_card(client: Any, api: Any, repo: str, revision: str | None, card: str) -> None:
    """Raise an error if the repository has another card."""
    if not api.file_exists(repo, CARD, revision=revision):
        return
    theirs = Path(client.hf_hub_download(repo, CARD, revision=revision))
    if theirs.read_text(encoding="utf-8") != card:
        raise UserError(
            f"{HUB}{repo} has another {CARD} already.", "Replace it with --force, or push without a card: --no-card."
        )
