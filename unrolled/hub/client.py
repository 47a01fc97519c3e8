"""The client of the hub, `huggingface_hub`, and its errors in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from unrolled.errors import UserError

if TYPE_CHECKING:
    from types import ModuleType

LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


class NoAnswer(UserError):
    """The hub cannot be reached, or must not be: HF_HUB_OFFLINE is set."""


def hub_client() -> ModuleType:
    """The module `huggingface_hub`; an error if it is missing."""
    try:
        import huggingface_hub
    except ImportError:
        raise UserError("The hub needs huggingface_hub.", "Install it: pip install 'unrolled[hub]'") from None
    return huggingface_hub


def hub_api() -> Any:
    """The client's functions, which say who calls them."""
    from unrolled import __version__

    return hub_client().HfApi(library_name="unrolled", library_version=__version__)


@contextmanager
def hub_errors(where: str) -> Iterator[None]:
    """Turn the client's errors into messages about `where`."""
    from huggingface_hub import errors

    try:
        yield
    except UserError:
        raise
    except errors.GatedRepoError:
        raise UserError(
            f"{where} is gated: its owner decides who may download it.", f"Ask on its page, then {LOGIN}."
        ) from None
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"{where} does not exist, or is private and not yours.",
            f"Check the name; for a private model, {LOGIN}.",
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{where} has no such revision.", "Give a branch, a tag or a commit, or none.") from None
    except errors.HFValidationError as error:
        raise UserError(f"{where} is not the name of a repository: {_line(error)}.", "Expected ORG/NAME.") from None
    except errors.OfflineModeIsEnabled:
        raise NoAnswer(
            f"HF_HUB_OFFLINE is set, and {where} is on the hub.", "Unset it to reach the hub, or use a local file."
        ) from None
    except errors.HfHubHTTPError as error:
        raise _refused(where, error) from None
    except RuntimeError as error:  # an upload that failed
        raise UserError(f"The transfer of {where} failed: {_line(error)}.", "Try again.") from None
    except _broken() as error:
        raise NoAnswer(
            f"No answer from the hub about {where}: {_line(error)}.",
            "Check the network, and HF_ENDPOINT if it is set. What was downloaded once works offline.",
        ) from None


def _broken() -> tuple[type[Exception], ...]:
    """Errors of the connection: those of the system, and of the HTTP library that the client uses."""
    from huggingface_hub import errors

    return (OSError, *(base for base in errors.HfHubHTTPError.__bases__ if issubclass(base, Exception)))


def _refused(where: str, error: Any) -> UserError:
    status = error.response.status_code
    said = error.server_message or error.response.reason_phrase
    if status == 401:
        return UserError(
            f"The hub does not know who asks for {where}: {said}.", "Log in with `hf auth login`, or set HF_TOKEN."
        )
    if status == 403:
        return UserError(
            f"No permission for {where}: {said}.", "Use a token with write access to it, or a name of your own."
        )
    return UserError(f"The hub answered about {where} with error {status}: {said}.", "Try again later.")


def _line(error: BaseException) -> str:
    """The first line of the message of an error, or of its cause, without a full stop."""
    text = str(error.__cause__ or error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")[:300]
