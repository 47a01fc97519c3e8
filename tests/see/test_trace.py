"""Traces of every task's models against plain autograd, untraced runs and the equations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.see.models import KINDS, RECURRENT, input_of, waves
from tests.tolerances import assert_close as close
from unrolled import UserError
from unrolled.model import Model
from unrolled.models.language import RecurrentLM
from unrolled.see import trace as trace_module
from unrolled.see.flow import contributions, largest_singular_values, one_step
from unrolled.tasks.recognize.batches import features_batch
from unrolled.tasks.recognize.predict import whole
from unrolled.tasks.translate.batches import source_batch

Find = Callable[[str], Model]
OPTIONS = "Unknown option of a trace 'hid'. Did you mean 'hide'? Choices: hide, seed, target, temperature, write."
COLD = "temperature=0 is not above 0. Use 1 for the model's own distribution."


DRAWN = ["generate-rnn", "classify", "translate-luong", "translate-transformer", "recognize", "caption"]


@pytest.mark.parametrize("kind", DRAWN)
def test_every_figure_is_drawn(kind: str, model_of: Find, tmp_path: Path) -> None:
    trace = model_of(kind).trace(input_of(kind))
    made = trace.save(tmp_path)
    assert {path.name.split(".")[0] for path in made} == set(trace.kinds)
    assert all(path.stat().st_size > 1000 for path in made)
    assert {"losses", "gradients"} <= set(trace.kinds)
    assert len(trace.losses_of) == len(trace.losses)
    assert "<img" in trace._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_missing_views_have_a_reason(kind: str, model_of: Find) -> None:
    trace = model_of(kind).trace(input_of(kind))
    absent = {"states", "gates", "norms", "flow", "attention", "beams"} - set(trace.kinds)
    assert ("frames" in trace.kinds) == (trace.task == "recognize")
    assert not set(trace.missing) & set(trace.kinds)
    for name in absent:
        assert name in trace.missing
        with pytest.raises(UserError, match=f"Choices: {', '.join(trace.kinds)}"):
            trace.figure(name)
    has = {"translate": "beams", "caption": "beams", "classify": "attention"}.get(trace.task)
    assert has is None or has in trace.kinds


def test_a_traced_run_has_the_untraced_ones_numbers(model_of: Find) -> None:
    """Equal to the bit: the same engine, with zeros added."""
    model = model_of("generate-lstm")
    network = model.network
    assert isinstance(network, RecurrentLM)
    ids = torch.tensor([[0, *model.assets.ids("3 and 4").tolist()]])
    traced, trace = network.trace(ids)
    network.layer.backend, before = trace.engine, network.layer.backend
    with torch.no_grad():
        plain, _ = network(ids)
    network.layer.backend = before
    assert torch.equal(plain, traced.detach())


@pytest.mark.parametrize("kind", ["translate-luong", "translate-bahdanau"])
def test_an_attending_decoder_traced_is_the_reference_engine(kind: str, model_of: Find) -> None:
    attend: Any = model_of(kind).network.get_submodule("decoder.attend")
    x, memory = torch.randn(1, 5, attend.rnn.input_size), torch.randn(1, 4, 16)
    seen, trace = attend.trace(x, memory)
    attend.backend, before = "reference", attend.backend
    plain = attend(x, memory)
    attend.backend = before
    for a, b in zip(seen[:3], plain[:3], strict=True):
        assert torch.equal(a, b)
    assert trace.scans["l0"].states["h"].shape[:2] == (1, 5)


@pytest.mark.parametrize("kind", RECURRENT)
def test_losses_reach_states_of_the_past_alone(kind: str, model_of: Find) -> None:
    model = model_of(kind)
    trace = model.trace(input_of(kind))
    layer = trace.layers[-1]
    norms = trace.gradients(layer)
    assert norms.shape == (len(trace.losses), len(trace.part_of(layer).tokens))
    assert bool((norms > 0).any())
    if trace.aligned == trace.part_of(layer).name and not layer.endswith("_reverse") and "tag" not in kind:
        assert float(norms.triu(1).abs().max()) == 0  # no loss knows the future


def test_gradients_reach_through_attention(model_of: Find) -> None:
    """Every loss of the target depends on every state of the encoder."""
    model = model_of("translate-luong")
    trace = model.trace("3 5 7")
    norms = trace.gradients("encoder.l0")
    assert norms.shape == (len(trace.losses), len(trace.tokens))
    assert bool((norms > 0).all())


@pytest.mark.parametrize("kind", ["generate-lstm", "generate-gru", "generate-rnn", "translate-bahdanau"])
def test_singular_values_are_those_of_the_whole_jacobian(kind: str, model_of: Find) -> None:
    trace = model_of(kind).trace(input_of(kind))
    layer = trace.layers[-1]
    step, entering = one_step(trace, layer)
    found = largest_singular_values(trace, layer)
    sizes = [part.shape[-1] for part in entering]
    for t in (0, len(found) // 2, len(found) - 1):

        def after(state: torch.Tensor, t: int = t) -> torch.Tensor:
            rows = [part.clone() for part in entering]
            for row, new in zip(rows, torch.split(state, sizes), strict=True):
                row[t] = new
            return torch.cat([new[t] for new in step(tuple(rows))])

        whole: Any = torch.autograd.functional.jacobian  # untyped in torch
        jacobian = whole(after, torch.cat([part[t] for part in entering]))
        expected = torch.linalg.svdvals(jacobian)[0]
        assert float(found[t]) == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("kind", ["generate-lstm", "generate-gru", "generate-rnn", "classify", "translate-luong"])
def test_contributions_add_up_to_autograds_gradient(kind: str, model_of: Find) -> None:
    """The norms are those of terms that sum to the weight's gradient."""
    model = model_of(kind)
    trace = model.trace(input_of(kind))
    layer = trace.layers[0]
    part, name = trace.part_of(layer), layer.rpartition(".")[2]
    loss = trace._losses.sum()
    shares = part.trace.weight_gradients(loss)[f"weight_hh_{name}"]  # (T, …)
    close(contributions(trace, layer)[f"weight_hh_{name}"], shares.flatten(1).norm(dim=1))
    (whole,) = torch.autograd.grad(loss, part.trace.cells[name][1][f"weight_hh_{name}"], retain_graph=True)
    close(shares.sum(0), whole)


@pytest.mark.parametrize("kind", ["translate-luong", "translate-bahdanau"])
def test_contributions_of_a_decoder_that_is_fed(kind: str, model_of: Find) -> None:
    trace = model_of(kind).trace(input_of(kind))
    decoder = trace.parts[1].trace
    loss = trace._losses.sum()
    shares = decoder.weight_gradients(loss)
    for name in ("weight_hh_l0", "weight_feed_l0", "weight_ih_l0"):
        (whole,) = torch.autograd.grad(loss, decoder.cells["l0"][1][name], retain_graph=True)
        close(shares[name].sum(0), whole)


@pytest.mark.parametrize("kind", RECURRENT)
def test_one_step_by_hand_gives_the_traced_numbers(kind: str, model_of: Find) -> None:
    trace = model_of(kind).trace(input_of(kind))
    for layer in trace.layers:
        steps = len(trace.part_of(layer).tokens)
        for step, unit in ((0, 0), (steps - 1, 3), (steps // 2, 1)):
            found = trace.by_hand(step, unit, layer)
            for line in found.lines:
                name = line.name.removesuffix("_t")
                assert line.value == pytest.approx(float(trace.values(layer, name)[step, unit]), abs=2e-5)
            assert str(found).count("\n") == len(found.lines)


def test_the_numbers_of_a_line_are_what_it_says(model_of: Find) -> None:
    """The numbers in the brackets, typed into a calculator, give the gate."""
    (line,) = [one for one in model_of("generate-lstm").trace("3 and 4").by_hand(3, 2).lines if one.name == "f"]
    inside = line.numbers.removeprefix("σ(").removesuffix(")").replace("−", "-").replace("- ", "-").replace("+ ", "+")
    total = sum(float(term) for term in inside.split())
    assert float(torch.tensor(total).sigmoid()) == pytest.approx(line.value, abs=1e-3)


def test_units_that_go_with_a_mark(model_of: Find) -> None:
    trace = model_of("generate-lstm").trace("3 and 4 make 7")
    target = trace.states["l0"]["c"][:, 5]
    found = trace.units_like(target.tolist(), "l0", "c")
    assert found[0][0] == 5
    assert found[0][1] == pytest.approx(1.0)
    expected = torch.corrcoef(torch.stack([target, trace.states["l0"]["c"][:, 2]]))[0, 1]
    assert dict(found)[2] == pytest.approx(float(expected), abs=1e-5)


def test_hidden_tokens_have_no_say(model_of: Find) -> None:
    """Hidden tokens have zero vectors, so that their identity does not matter."""
    model = model_of("generate-lstm")
    a, b = (model.trace(text, hide=(2,)) for text in ("3 and", "3band"))  # step 0 reads the start
    assert a.tokens[2] != b.tokens[2]
    assert torch.equal(a.states["l0"]["h"], b.states["l0"]["h"])
    assert not torch.equal(a.states["l0"]["h"], model.trace("3 and").states["l0"]["h"])


def test_options_change_the_trace(model_of: Find) -> None:
    model = model_of("translate-luong")
    assert model.trace("3 5", prefix="five").answer.startswith("five")
    assert len(model.trace("3 5", beam=3).beams.outputs) == 3  # type: ignore[union-attr]
    wide, narrow = (model.trace("3 5", beam=size).beams for size in (4, 1))
    assert wide is not None
    assert narrow is not None
    assert len(wide.nodes) > len(narrow.nodes)
    written = model_of("generate-lstm").trace("3 and", write=5, seed=1)
    assert len(written.tokens) == 10
    sharp = model_of("generate-lstm").trace("3 and", temperature=0.1).guesses[0][0][1]
    assert sharp > model_of("generate-lstm").trace("3 and").guesses[0][0][1]


def test_the_winner_of_a_beam_is_marked_from_root_to_end(model_of: Find) -> None:
    beams = model_of("translate-luong").trace("3 5 7", beam=3).beams
    assert beams is not None
    winner = [node for node in beams.nodes if node.fate == "winner"]
    assert [node.step for node in winner] == list(range(1, len(winner) + 1))
    assert sum(node.edge for node in winner) == pytest.approx(beams.outputs[0][2], abs=1e-6)
    parents = {node.parent for node in beams.nodes}
    ended = [i for i, node in enumerate(beams.nodes) if node.fate in ("ended", "cut")]
    assert not parents & set(ended)
    leaves = [height for i, height in enumerate(beams.places) if i not in parents]
    assert sorted(leaves) == list(map(float, range(len(leaves))))  # each has a line of its own


def test_crf_losses_are_of_marginals_over_all_sequences(model_of: Find) -> None:
    """−log p of each tag, with p summed over all tag sequences of a short sentence."""
    model = model_of("tag-crf")
    trace = model.trace("Ada met Kurt")
    network: Any = model.network
    scores = network(model.assets.collate([trace_sentence("Ada met Kurt")]))[0].detach()
    crf, tags = network.crf, scores.shape[1]
    total = torch.zeros(3, tags, dtype=torch.float64)
    for path in torch.cartesian_prod(*[torch.arange(tags)] * 3):
        weight = crf.score(scores[None], path[None], torch.tensor([3])).exp().detach()[0]
        for t, tag in enumerate(path):
            total[t, tag] += weight
    chances = total / total[0].sum()
    best = [dict(row) for row in trace.guesses]
    for t, row in enumerate(best):
        for name, chance in row.items():
            assert chance == pytest.approx(float(chances[t, model.assets.learnt.id(name)]), rel=1e-3)


def trace_sentence(text: str) -> Any:
    from unrolled.data.readers.tagged.sentences import Sentence

    return Sentence(tuple(text.split()))


def test_attention_rows_sum_to_one(model_of: Find) -> None:
    for kind in ("translate-luong", "translate-bahdanau", "translate-transformer", "generate-transformer", "classify"):
        for found in model_of(kind).trace(input_of(kind)).attention.values():
            close(found.weights.sum(-1), torch.ones(found.weights.shape[:-1]))
            assert found.weights.shape[2:] == (len(found.rows), len(found.columns))


def test_a_long_text_is_followed_from_some_losses(model_of: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "EXACT_STEPS", 20)
    monkeypatch.setattr(trace_module, "SAMPLED_ROWS", 5)
    trace = model_of("generate-gru").trace("3 and 4 make 7\n5 and 6 make 11")
    whole = trace.gradient_rows()
    assert whole == [0, 7, 14, 22, 29]
    sampled = trace.gradients()
    monkeypatch.setattr(trace_module, "EXACT_STEPS", 512)
    close(sampled, trace.gradients()[whole])


def test_forecast_losses_are_training_losses(model_of: Find) -> None:
    model = model_of("forecast")
    trace = model.trace(waves(20))
    from unrolled.data.readers.series.read_series import Series
    from unrolled.data.signals.scaling import SeriesPart

    steps = model.assets.steps(SeriesPart(Series(waves(20), "")))
    network: Any = model.network
    with torch.no_grad():
        estimate, _ = network(torch.from_numpy(steps.inputs)[None])
    wanted = torch.from_numpy(steps.targets)
    losses = network.output.loss(estimate[0], wanted.nan_to_num(), network.scale)
    close(trace.losses, torch.where(wanted.isnan(), 0.0, losses).sum((-1, -2)))


@pytest.mark.parametrize(
    ("kind", "given", "options", "message"),
    [
        ("generate-lstm", "", {}, "There is no text to trace. Give at least one token."),
        ("generate-lstm", 5, {}, "The input is int. Expected a text."),
        ("classify", "", {}, "There is nothing to trace. Give an input with at least one step."),
        ("tag-crf", "", {}, "There is no text to trace. Give at least one word."),
        ("translate-luong", "", {}, "There is no text to show. Give a source with at least one token."),
        ("forecast", waves(0), {}, "There is no row to trace. Give at least one."),
        ("generate-lstm", "3", {"hid": (1,)}, OPTIONS),
        ("generate-lstm", "3", {"hide": (9,)}, "There is no token 9 to hide. Expected positions from 0 to 0."),
        ("generate-lstm", "3", {"hide": "a"}, "hide='a' is not positions such as 0,3."),
        ("generate-lstm", "3", {"temperature": 0}, COLD),
        ("generate-lstm", "3", {"temperature": "nan"}, "temperature='nan' is not a number."),
        ("translate-luong", "3", {"beam": "many"}, "beam='many' is not a whole number."),
        ("classify", "one", {"label": "god"}, "Unknown label 'god'. Did you mean 'good'? Choices: bad, good."),
    ],
)  # fmt: skip
def test_mistakes(kind: str, given: Any, options: dict[str, Any], message: str, model_of: Find) -> None:
    with pytest.raises(UserError) as error:
        model_of(kind).trace(given, **options)
    assert str(error.value) == message


def test_mistakes_with_a_trace(model_of: Find) -> None:
    trace = model_of("generate-lstm").trace("3 and")
    for call, message in (
        (lambda: trace.figure("gate"), "Unknown figure 'gate'. Did you mean 'gates'?"),
        (lambda: trace.figure("gates", "l7"), "Unknown layer 'l7'. Choices: l0, l1."),
        (lambda: trace.values("l0", "z"), "Unknown gate or state 'z'."),
        (lambda: trace.by_hand(9, 0), "There is no step 9. Expected 0 to 4."),
        (lambda: trace.by_hand(0, 99), "There is no unit 99. Expected 0 to 11."),
        (lambda: trace.units_like([1.0]), "The mark has 1 numbers. Expected one for each of 5 steps."),
        (lambda: trace.units_like([1.0] * 5), "The mark is the same for all tokens."),
    ):
        with pytest.raises(UserError) as error:
            call()
        assert str(error.value).startswith(message)
    with pytest.raises(UserError, match=r"A vanilla RNN has no gates\. Choices: losses, states, norms"):
        model_of("generate-rnn").trace("3").figure("gates")


def test_a_text_that_does_not_fit_says_what_does(model_of: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "free_memory", lambda: 2**14)
    with pytest.raises(UserError, match=r"The input has 14 tokens: its trace needs about .* Give at most \d tokens\."):
        model_of("generate-lstm").trace("3 and 4 make 7")


@pytest.mark.parametrize("kind", ["translate-luong", "translate-bahdanau"])
def test_gradients_of_a_decoder_agree_with_autograd_step_by_step(kind: str, model_of: Find) -> None:
    """Compare with autograd through the states that the search's steps pass on."""
    model = model_of(kind)
    trace = model.trace("3 5 7")
    network: Any = model.network
    assets = model.assets
    state = network.start(network.encode(source_batch(assets, [assets.source.ids("3 5 7")])))
    tokens = [assets.target.tokenizer.vocabulary.id(token) for token in ("<bos>", *trace.losses_of)]
    states, losses = [], []
    for token, following in itertools.pairwise(tokens[:8]):
        step = network.step(torch.tensor([token]), state)
        state = step.state
        state[0][0].retain_grad()
        states.append(state[0][0])
        losses.append(-step.log_probs.log_softmax(-1)[0, following])
    losses[-1].backward()
    expected = torch.stack([h.grad.norm() for h in states])
    close(trace.gradients("decoder.l0")[len(states) - 1, : len(states)], expected)
    network.zero_grad()


def test_frames_of_a_recogniser(model_of: Find) -> None:
    """The posteriors are the network's, and the alignment spells the text."""
    model = model_of("recognize")
    trace = model.trace(input_of("recognize"), text="ab", beam=4)
    frames = trace.frames
    assert frames is not None
    reader = model.assets.reader
    with torch.no_grad():
        log_probs, _ = model.network(features_batch([whole(reader, reader.given(input_of("recognize"))).features]))
    close(frames.posteriors, log_probs[0].exp())
    assert [label for _, label, _ in frames.spikes] == ["a", "b"]
    assert frames.states == ("<blank>", "a", "<blank>", "b", "<blank>")
    assert frames.lattice is not None
    close(frames.lattice.sum(1), torch.ones(len(frames.lattice)))
    assert [frames.labels.index(frames.states[state]) for state in frames.path] == frames.alignment
    expected = -torch.nn.functional.ctc_loss(
        log_probs[0],
        torch.tensor(model.assets.labels.ids("ab")),
        torch.tensor(len(log_probs[0])),
        torch.tensor(2),
        reduction="none",
    )
    close(trace.losses[0], -expected)
    for options, message in (
        ({"text": "xyz"}, "The model knows no label of text='xyz'. It knows: "),
        ({"beam": 0}, "beam=0 is not above 0. Use 1 or more."),
    ):
        with pytest.raises(UserError) as error:
            model.trace(input_of("recognize"), **options)
        assert str(error.value).startswith(message)
