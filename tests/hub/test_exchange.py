"""Models to the hub and back: the same bytes, the same answers, and a message for everything that goes wrong."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save

import unrolled
from tests.hub.server import READER, Hub
from unrolled import UserError
from unrolled.errors import Note
from unrolled.hub import Address
from unrolled.hub.client import NoAnswer
from unrolled.model import Model, find_file

ASK = {"max_tokens": 20, "seed": 0}


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return unrolled.load(run)


@pytest.fixture
def bytes_of(run: Path) -> bytes:
    return (run / "best.safetensors").read_bytes()


def problem_of(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as raised:
        call()
    return str(raised.value)


def test_a_pushed_model_comes_back_as_it_was(hub: Hub, model: Model) -> None:
    where = model.push_to_hub("anna/book", licence="mit", language=["en"])
    oid = hub.repos["anna/book"].branches["main"]
    assert where == f"{hub.url}/anna/book/commit/{oid}"
    files = hub.repos["anna/book"].files("main")
    assert files is not None
    assert set(files[1]) == {".gitattributes", "model.safetensors", "README.md"}
    assert files[1]["README.md"].decode() == model.card(name="anna/book", licence="mit", language=["en"])

    path = find_file("hub:anna/book")
    assert path.read_bytes() == files[1]["model.safetensors"]
    again = unrolled.load("hub:anna/book")
    assert again.predict("3 and 4", **ASK) == model.predict("3 and 4", **ASK)
    assert (again.scores, again.data, again.config) == (model.scores, model.data, model.config)
    assert not any("README" in request for request in hub.requests if "GET" in request)


def test_a_model_is_downloaded_once(hub: Hub, bytes_of: bytes) -> None:
    hub.add("anna/book", {"model.safetensors": bytes_of})
    first, second = find_file("hub:anna/book"), find_file("hub:anna/book")
    assert first == second
    assert sum(request.startswith("GET /blobs/") for request in hub.requests) == 1


def test_revisions_are_branches_and_commits(hub: Hub, model: Model, bytes_of: bytes) -> None:
    old = hub.add("anna/book", {"model.safetensors": bytes_of})
    model.push_to_hub("anna/book", licence=None, revision="v2", message="Better")
    hub.add("anna/book", {})
    assert find_file(f"hub:anna/book@{old}").read_bytes() == bytes_of
    assert unrolled.load("hub:anna/book@v2").scores == model.scores
    assert problem_of(lambda: unrolled.load("hub:anna/book@v3")) == (
        "hub:anna/book@v3 has no such revision. Give a branch, a tag or a commit, or none."
    )


def test_a_file_by_name(hub: Hub, bytes_of: bytes) -> None:
    hub.add("anna/book", {"small.safetensors": bytes_of})
    assert find_file("hub:anna/book").name == "small.safetensors"
    hub.add("anna/book", {"small.safetensors": bytes_of, "large.safetensors": b""})
    assert find_file("hub:anna/book/small.safetensors").read_bytes() == bytes_of
    assert problem_of(lambda: find_file("hub:anna/book")) == (
        "hub:anna/book holds several models: small.safetensors, large.safetensors. "
        "Name one, such as hub:anna/book/small.safetensors."
    )
    assert problem_of(lambda: find_file("hub:anna/book/tiny.safetensors")) == (
        "hub:anna/book/tiny.safetensors does not exist. Its models: small.safetensors, large.safetensors."
    )


def test_fine_tuning_starts_from_the_hub(hub: Hub, model: Model, book: Path, tmp_path: Path) -> None:
    model.push_to_hub("anna/book", licence="mit")
    settings = {"train.max_steps": 1, "train.batch_size": 8, "train.k1": 20, "train.lr": 1e-9}
    tuned = unrolled.train("generate", train=book, init="hub:anna/book", out=tmp_path / "run", set=settings, quiet=True)
    assert (tmp_path / "run" / "init.safetensors").read_bytes() == find_file("hub:anna/book").read_bytes()
    for name, weight in tuned.network.state_dict().items():
        torch.testing.assert_close(weight, model.network.state_dict()[name], atol=1e-6, rtol=0)


def test_a_card_that_is_there_stays(hub: Hub, model: Model) -> None:
    model.push_to_hub("anna/book", licence="mit")
    model.push_to_hub("anna/book", licence="mit")  # the same card
    hub.add("anna/book", {"README.md": b"# By hand\n"})
    assert problem_of(lambda: model.push_to_hub("anna/book", licence="mit")) == (
        "hub:anna/book has another README.md already. Replace it with --force, or push without a card: --no-card."
    )
    model.push_to_hub("anna/book", licence="mit", card=False)
    files = hub.repos["anna/book"].files("main")
    assert files is not None
    assert files[1]["README.md"] == b"# By hand\n"
    assert "model.safetensors" in files[1]
    model.push_to_hub("anna/book", licence="mit", force=True)
    assert unrolled.load("hub:anna/book").scores == model.scores


def test_private_repositories(hub: Hub, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    model.push_to_hub("anna/secret", licence=None, private=True)
    assert hub.repos["anna/secret"].private
    assert unrolled.load("hub:anna/secret").scores == model.scores
    monkeypatch.setenv("HF_TOKEN", READER)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", constants.HF_HUB_CACHE + "-of-ben")
    missing = "does not exist, or is private and not yours. Check the name; for a private model, log in with"
    assert missing in problem_of(lambda: unrolled.load("hub:anna/secret"))


def test_no_permission(hub: Hub, model: Model, bytes_of: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", READER)
    assert problem_of(lambda: model.push_to_hub("anna/book", licence="mit")) == (
        "No permission for hub:anna/book: You don't have the rights to create a model under this namespace. "
        "Use a token with write access to it, or a name of your own."
    )
    monkeypatch.setenv("HF_TOKEN", "wrong")
    hub.add("anna/book", {"model.safetensors": bytes_of})
    for ask in (lambda: unrolled.load("hub:anna/book"), lambda: model.push_to_hub("anna/book", licence="mit")):
        assert problem_of(ask) == (
            "The hub does not know who asks for hub:anna/book: Invalid credentials in Authorization header. "
            "Log in with `hf auth login`, or set HF_TOKEN."
        )


def test_gated_and_missing_repositories(hub: Hub, bytes_of: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("anna/gated", {"model.safetensors": bytes_of}, gated=True)
    monkeypatch.setenv("HF_TOKEN", READER)
    assert problem_of(lambda: unrolled.load("hub:anna/gated")) == (
        "hub:anna/gated is gated: its owner decides who may download it. "
        "Ask on its page, then log in with `hf auth login`, or set HF_TOKEN."
    )
    assert problem_of(lambda: unrolled.load("hub:anna/nothing")) == (
        "hub:anna/nothing does not exist, or is private and not yours. "
        "Check the name; for a private model, log in with `hf auth login`, or set HF_TOKEN."
    )


def test_a_hub_out_of_order(hub: Hub) -> None:
    hub.fails = 500
    assert problem_of(lambda: unrolled.load("hub:anna/book")) == (
        "The hub answered about hub:anna/book with error 500: out of order. Try again later."
    )


def test_an_upload_that_fails(hub: Hub, model: Model) -> None:
    hub.stores = False
    message = problem_of(lambda: model.push_to_hub("anna/book", licence="mit"))
    assert message.startswith("The transfer of hub:anna/book failed: ")
    assert message.endswith("403 Forbidden: The store is full. Try again.")
    files = hub.repos["anna/book"].files("main")
    assert files is not None
    assert set(files[1]) == {".gitattributes"}  # nothing was committed


def test_other_files_are_refused(hub: Hub) -> None:
    hub.add("anna/empty", {"README.md": b"# Nothing\n"})
    assert problem_of(lambda: unrolled.load("hub:anna/empty")) == (
        "hub:anna/empty holds no model of unrolled, but README.md. Give one that unrolled wrote."
    )
    hub.add("anna/pickled", {"pytorch_model.bin": pickle.dumps({"a": 1}), "code.py": b"raise SystemExit"})
    assert problem_of(lambda: unrolled.load("hub:anna/pickled")) == (
        "hub:anna/pickled holds no .safetensors file, but pytorch_model.bin: a pickle, which can run any code when it "
        "is loaded. It is not downloaded. Ask its owner for a model that unrolled wrote."
    )
    assert not any("resolve" in request for request in hub.requests)


def test_models_of_others_are_refused(hub: Hub) -> None:
    theirs = save({"weight": torch.zeros(2)})
    hub.add("anna/bert", {"model.safetensors": theirs, "README.md": b"---\nlibrary_name: transformers\n---\n"})
    assert problem_of(lambda: unrolled.load("hub:anna/bert")) == (
        "hub:anna/bert is a model of transformers. Give one that unrolled wrote."
    )
    assert not any("resolve" in request for request in hub.requests)
    hub.add("anna/plain", {"model.safetensors": theirs})
    assert "is a safetensors file, but not one of unrolled's." in problem_of(lambda: unrolled.load("hub:anna/plain"))


def test_damaged_files_are_refused(hub: Hub, bytes_of: bytes) -> None:
    hub.add("anna/cut", {"model.safetensors": bytes_of[:-10]})
    message = problem_of(lambda: unrolled.load("hub:anna/cut"))
    assert message.startswith("hub:anna/cut: ")
    assert "is not a complete model file" in message
    assert "To download it again, delete" in message
    changed = bytearray(bytes_of)
    changed[-3] ^= 1
    hub.add("anna/changed", {"model.safetensors": bytes(changed)})
    assert "is damaged: its weights are not those it was written with." in problem_of(
        lambda: unrolled.load("hub:anna/changed")
    )


def test_a_damaged_copy_in_the_cache(hub: Hub, bytes_of: bytes) -> None:
    hub.add("anna/book", {"model.safetensors": bytes_of})
    blob = find_file("hub:anna/book").resolve()
    blob.write_bytes(bytes_of[:100])
    assert problem_of(lambda: unrolled.load("hub:anna/book")) == (
        f"hub:anna/book is damaged: model.safetensors has 100 bytes, and {len(bytes_of):,} on the hub. "
        f"To download it again, delete {blob}."
    )
    blob.unlink()
    assert find_file("hub:anna/book").read_bytes() == bytes_of


def test_without_a_network(hub: Hub, bytes_of: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("anna/book", {"model.safetensors": bytes_of})
    path = find_file("hub:anna/book")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.warns(Note, match=r"The copy of hub:anna/book that was downloaded before is used\."):
            assert find_file("hub:anna/book") == path
        with pytest.raises(NoAnswer) as raised:
            find_file("hub:anna/other")
        assert raised.value.problem.startswith("No answer from the hub about hub:anna/other: ")
        assert raised.value.problem.endswith("It was not downloaded before.")
        assert raised.value.fix == (
            "Check the network, and HF_ENDPOINT if it is set. What was downloaded once works offline."
        )
        message = problem_of(lambda: unrolled.load(path).push_to_hub("anna/new", licence="mit"))
        assert message.startswith("No answer from the hub about hub:anna/new: ")


def test_offline(hub: Hub, bytes_of: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("anna/book", {"small.safetensors": bytes_of})
    path = find_file("hub:anna/book")
    asked = len(hub.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_file("hub:anna/book") == path
    assert problem_of(lambda: find_file("hub:anna/book@v2")) == (
        "HF_HUB_OFFLINE is set, and hub:anna/book@v2 is on the hub. It was not downloaded before. "
        "Unset it to reach the hub, or use a local file."
    )
    assert len(hub.requests) == asked


@pytest.mark.parametrize(
    "text", ["hub:", "hub:anna", "hub:anna/", "hub:/book", "hub:anna/book@", "hub:../book", "hub:a b/c"]
)
def test_addresses_that_are_none(text: str) -> None:
    assert problem_of(lambda: unrolled.load(text)) == (
        f"{text!r} is not the address of a model on the hub. "
        "Expected hub:ORG/NAME, such as hub:anna/tagger, or hub:anna/tagger@REVISION."
    )


def test_addresses_of_other_files() -> None:
    assert Address.parse("hub:a/b/c/d.safetensors@x/y") == Address("a/b", "x/y", "c/d.safetensors")
    for file in ("model.bin", "../../x.safetensors"):
        assert problem_of(lambda: unrolled.load(f"hub:anna/book/{file}")) == (  # noqa: B023
            f"'hub:anna/book/{file}' names '{file}'. Models are .safetensors files: nothing else is downloaded."
        )


def test_names_to_push_to(model: Model) -> None:
    assert problem_of(lambda: model.push_to_hub("anna/book@v2", licence="mit")) == (
        "'anna/book@v2' is more than a repository. Give ORG/NAME; a branch is given with --revision."
    )


def test_a_card_that_the_hub_refuses(hub: Hub, model: Model) -> None:
    assert problem_of(lambda: model.push_to_hub("anna/book", licence="my-own")) == (
        'The hub refuses the card: "license" must be one of [apache-2.0, mit, other]. '
        "Change the licence, language or datasets."
    )


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    assert problem_of(lambda: unrolled.load("hub:anna/book")) == (
        "The hub needs huggingface_hub. Install it: pip install 'unrolled[hub]'"
    )
