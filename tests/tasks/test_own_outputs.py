"""Training on the model's own outputs, against a loop over time written out with torch's cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.tasks.own_outputs import (
    FAMILIES,
    Family,
    attending_translator,
    on_engine,
    plain_translator,
    recurrent_language,
)
from tests.tolerances import assert_close
from unrolled import UserError, api
from unrolled.jobs import TrainingJob
from unrolled.tasks.contract import Training
from unrolled.tasks.generate.own_outputs import with_own_outputs
from unrolled.tasks.shared.targets import with_guesses

# the settings, what is done of the run, and the share of own outputs there
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "never": ({"teacher_forcing": "never"}, {}, 1.0),
    "share": ({"teacher_forcing": "share", "forced_share": 0.6}, {}, 0.4),
    "schedule": ({"teacher_forcing": "linear"}, {"done": 0.7}, 0.7),
    "after the switch": ({"teacher_forcing": "switch", "switch_step": 5}, {"step": 5}, 1.0),
    "before the switch": ({"teacher_forcing": "switch", "switch_step": 5}, {"step": 4}, 0.0),
}
PLAIN = {"label_smoothing": 0.0, "doubly_stochastic": 0.0}


def training(family: Family, changes: dict[str, Any], **done: Any) -> Training:
    section = family.config.model_fields["train"].annotation
    plain = {key: value for key, value in PLAIN.items() if key in section.model_fields}
    return Training(section(feedback="steps", **plain, **changes), **done)


def by_loop(family: Family, share: float, pick: str) -> tuple[Tensor, list[Tensor]]:
    """The summed loss of a loop over time that feeds back what it says, and the tokens (B,) that each step read."""
    inputs, real, targets = family.inputs, family.real, family.batch.targets
    own = (torch.rand(real.shape) < share) & real
    own[:, 0] = False
    last = max([t for t in range(own.shape[1]) if own[:, t].any()], default=0)
    state, total, read = family.start(), torch.zeros((), dtype=torch.float64), [inputs[:, 0]]
    for t in range(inputs.shape[1]):
        scores, state = family.step(read[t], state)
        total = total + F.cross_entropy(scores[real[:, t]], targets[real[:, t], t], reduction="sum")
        if t + 1 < inputs.shape[1]:
            said = inputs[:, t + 1]
            if t < last:
                said = scores.argmax(-1) if pick == "argmax" else torch.multinomial(scores.float().softmax(-1), 1)[:, 0]
            read.append(torch.where(own[:, t + 1], said, inputs[:, t + 1]))
    return total, read


def gradients(network: Any, loss: Tensor) -> dict[str, Tensor]:
    found = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    names = [name for name, _ in network.named_parameters()]
    return {name: one for name, one in zip(names, found, strict=True) if one is not None}


@pytest.mark.parametrize("pick", ["argmax", "sample"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FAMILIES)
def test_loss_and_gradients_are_those_of_a_loop_over_time(name: str, way: str, pick: str) -> None:
    """Of ragged rows, some with a state: losses and the gradients of all weights."""
    changes, done, share = WAYS[way]
    family = FAMILIES[name]()
    seed = int(torch.randint(1 << 30, ()))
    torch.manual_seed(seed)
    ours = family.task.loss(
        family.network, family.batch, family.entry, training(family, {**changes, "pick": pick}, **done)
    )
    found = gradients(family.network, ours.sum)
    torch.manual_seed(seed)
    total, _ = by_loop(family, share, pick)
    expected = gradients(family.network, total)
    assert float(ours.count) == float(family.real.sum())
    assert_close(ours.sum, total)
    assert found.keys() == expected.keys()
    for weight, gradient in expected.items():
        assert_close(found[weight], gradient, weight)
    assert all(module.training for module in family.network.modules())


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("make", [plain_translator, attending_translator, recurrent_language])
def test_every_engine_runs_it(make: Any, engine: str) -> None:
    """In float32, against the loop in float64."""
    family = make()
    expected, _ = by_loop(family, 1.0, "argmax")
    wanted = gradients(family.network, expected)
    network = family.network.float()
    on_engine(network, engine)
    entry = None if family.entry is None else tuple(part.float() for part in family.entry)
    settings = training(family, {"teacher_forcing": "never", "pick": "argmax"})
    loss = family.task.loss(network, family.batch, entry, settings)
    assert_close(loss.sum, expected.float())
    for weight, gradient in gradients(network, loss.sum).items():
        assert_close(gradient, wanted[weight].float(), weight)


@pytest.mark.parametrize("name", FAMILIES)
def test_only_true_tokens_are_teacher_forcing_to_the_bit(name: str) -> None:
    family = FAMILIES[name]()
    found = []
    ways: list[dict[str, Any]] = [{}, {"teacher_forcing": "share", "forced_share": 1.0, "feedback": "steps"}]
    for changes in ways:
        section = family.config.model_fields["train"].annotation
        loss = family.task.loss(family.network, family.batch, family.entry, Training(section(**changes)))
        found.append([loss.sum, *gradients(family.network, loss.sum).values()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("make", [attending_translator, recurrent_language], ids=["writer", "language model"])
def test_what_is_read_depends_on_what_was_read(make: Any) -> None:
    """The parallel draw guesses from the true tokens; the steps guess from their own, so the two differ."""
    family = make()
    settings = training(family, {"teacher_forcing": "never", "pick": "argmax"}).settings
    parallel = settings.model_copy(update={"feedback": "parallel"})
    _, read = by_loop(family, 1.0, "argmax")
    expected = torch.where(family.real, torch.stack(read, dim=1), family.inputs)
    assert torch.equal(_read(family, settings), expected)
    with torch.no_grad():
        state, guesses = family.start(), []
        for t in range(family.inputs.shape[1]):
            scores, state = family.step(family.inputs[:, t], state)
            guesses.append(scores.argmax(-1))
    at_once = torch.stack([family.inputs[:, 0], *guesses[:-1]], dim=1)
    assert torch.equal(_read(family, parallel)[family.real], at_once[family.real])
    assert not torch.equal(expected[family.real], at_once[family.real])


def _read(family: Family, settings: Any) -> Tensor:
    if family.batch.more:
        read: Tensor = with_guesses(family.network, family.batch, Training(settings)).more["target_inputs"]
    else:
        read = with_own_outputs(family.network, family.batch, family.entry, Training(settings)).inputs
    return read


def test_padding_is_never_fed_back() -> None:
    family = plain_translator()
    settings = training(family, {"teacher_forcing": "never"}).settings
    assert torch.equal(_read(family, settings)[~family.real], family.inputs[~family.real])


def test_both_passes_over_an_example_read_the_same() -> None:
    """With consistency every example is twice in a batch."""
    family = plain_translator()
    batch = replace(
        family.batch,
        inputs=family.batch.inputs.repeat(2, 1),
        lengths=torch.cat([family.batch.lengths] * 2),
        more={name: torch.cat([value, value]) for name, value in family.batch.more.items()},
    )
    settings = training(family, {"teacher_forcing": "never", "consistency": 1.0}).settings
    read = with_guesses(family.network, batch, Training(settings)).more["target_inputs"]
    assert torch.equal(read[:3], read[3:])
    assert not torch.equal(read[:3], family.inputs)


def test_outputs_are_those_of_the_network_as_it_writes() -> None:
    """Without dropout, while the loss has it."""
    family = recurrent_language()
    family.network._dropout = family.network._input_dropout = 0.9
    settings = training(family, {"teacher_forcing": "never", "pick": "argmax"}).settings
    _, read = by_loop(family, 1.0, "argmax")
    assert torch.equal(_read(family, settings), torch.where(family.real, torch.stack(read, dim=1), family.inputs))
    assert family.network.training


def test_where_a_text_begins_in_the_middle_of_a_window_its_token_is_true() -> None:
    family = recurrent_language()
    resets = torch.zeros(3, 7, dtype=torch.bool)
    resets[0, 4] = resets[1, 0] = True
    batch = family.batch.__class__(family.batch.inputs, family.batch.targets, resets=resets)
    settings = training(family, {"teacher_forcing": "never", "pick": "argmax"}).settings
    read = with_own_outputs(family.network, batch, family.entry, Training(settings)).inputs
    assert read[0, 4] == batch.inputs[0, 4]
    alone = batch.__class__(batch.inputs[:1, 4:], batch.targets[:1, 4:])
    assert torch.equal(
        read[:1, 4:], with_own_outputs(family.network, alone, None, Training(settings)).inputs
    )  # nothing from before is seen


STEPWISE = {"model.kind": "stepwise", "model.encoder.bidirectional": False, "train.teacher_forcing": "never"}
FRACTION = {
    "model.kind": "transformer",
    "model.positions": "fraction",
    "train.teacher_forcing": "never",
    "train.feedback": "steps",
}


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (
            "translate",
            STEPWISE,
            "train.teacher_forcing='never' does nothing here: it belongs to model.kind other than stepwise, and "
            "model.kind is stepwise. Leave it out.",
        ),
        (
            "generate",
            FRACTION,
            "train.feedback=steps goes step by step, and model.positions=fraction needs a window's length before its "
            "first step. Use model.positions=sinusoidal, or train.feedback=parallel.",
        ),
    ],
)
def test_what_cannot_go_step_by_step_is_refused(
    task: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "data.tsv"
    path.write_text("a b\tb a\nb a\ta b\na a\tb b\n" * 9)
    with pytest.raises(UserError) as caught:
        TrainingJob(api.configure(task, [], {**changes, "data.train": str(path), "train.batch_size": 2})).trainer()
    assert str(caught.value) == message
