"""The truth beside the answer: losses, gradients and word attribution use it if it is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.see.models import KINDS, input_of, waves
from tests.tolerances import assert_close as close
from unrolled import UserError, api
from unrolled.errors import Note
from unrolled.model import Model
from unrolled.serve.inspector import Asked, Inspection, save_report
from unrolled.tasks import Example
from unrolled.tasks.recognize.batches import features_batch
from unrolled.tasks.recognize.predict import whole
from unrolled.tasks.translate.batches import pair_batch

Find = Callable[[str], Model]
TEXT = "one fine two three"


def test_a_confident_mistake_does_not_look_perfect(model_of: Find) -> None:
    """The loss is −log p of the truth, not of the answer."""
    model = model_of("classify")
    chances = model.predict(TEXT).probabilities
    answer = max(chances, key=chances.__getitem__)
    wrong = next(label for label in chances if label != answer)
    own, true = model.trace(TEXT), model.trace(TEXT, truth=wrong)
    assert float(own.losses[0]) == pytest.approx(-np.log(chances[answer]), rel=1e-4)
    assert float(true.losses[0]) == pytest.approx(-np.log(chances[wrong]), rel=1e-4)
    assert (own.truth, own.right, own.follows) == (None, None, "answer")
    assert (true.truth, true.right, true.follows, true.losses_of) == (wrong, False, "truth", [wrong])
    assert true.summary.endswith(f"(truth: {wrong})")
    asked = model.trace(TEXT, truth=wrong, target="answer")
    assert torch.equal(asked.losses, own.losses)
    assert (asked.truth, asked.follows) == (wrong, "answer")
    assert model.trace(TEXT, truth=wrong, label=answer).follows == "label"


def test_gradients_follow_the_truth(model_of: Find) -> None:
    model = model_of("classify")
    chances = model.predict(TEXT).probabilities
    wrong = min(chances, key=chances.__getitem__)
    true, label = model.trace(TEXT, truth=wrong), model.trace(TEXT, label=wrong)
    close(true.gradients(), label.gradients())
    assert not torch.equal(true.gradients(), model.trace(TEXT).gradients())


def test_true_tags(model_of: Find) -> None:
    model = model_of("tag-softmax")
    words, tags = ["Ada", "met", "Kurt"], ["O", "B-PER", "O"]
    trace = model.trace(" ".join(words), truth=tags)
    answered = [tag for _, _, tag in trace.compared]
    assert trace.compared == list(zip(words, tags, answered, strict=True))
    assert trace.losses_of == ["Ada/O", "met/B-PER", "Kurt/O"]
    assert trace.right == (answered == tags)
    assert torch.equal(model.trace("Ada met Kurt", truth="O B-PER O").losses, trace.losses)
    same = model.trace("Ada met Kurt", truth=answered)
    assert same.right
    close(same.losses, model.trace("Ada met Kurt").losses)
    unseen = model.trace("Ada met Kurt", truth="O B-XYZ O")
    assert float(unseen.losses[1]) == 0
    assert "Training never saw the tag" in unseen.notes[0]


def test_a_true_translation_is_read_in_place_of_the_answer(model_of: Find) -> None:
    model = model_of("translate-luong")
    trace = model.trace("3 5", truth="five three")
    assets, network = model.assets, model.network
    batch = pair_batch(assets, [(assets.source.ids("3 5"), assets.target.ids("five three"))])
    assert isinstance(network, torch.nn.Module)
    found: Any = network
    with torch.no_grad():
        scores = found.scores(found(batch).features)[0]
    close(trace.losses, torch.nn.functional.cross_entropy(scores, batch.targets[0], reduction="none"))
    assert trace.answer == model.trace("3 5").answer
    assert trace.truth == "five three"
    assert trace.losses_of == [*assets.target.shown(assets.target.ids("five three").tolist()), "<eos>"]


def test_a_true_transcript_is_aligned(model_of: Find) -> None:
    model = model_of("recognize")
    trace = model.trace(input_of("recognize"), truth="ba")
    reader = model.assets.reader
    with torch.no_grad():
        log_probs, _ = model.network(features_batch([whole(reader, reader.given(input_of("recognize"))).features]))
    expected = torch.nn.functional.ctc_loss(
        log_probs[0],
        torch.tensor(model.assets.labels.ids("ba")),
        torch.tensor(len(log_probs[0])),
        torch.tensor(2),
        reduction="sum",
    )
    close(trace.losses[0], expected)
    assert trace.frames is not None
    assert [label for _, label, _ in trace.frames.spikes] == ["b", "a"]
    long = model.trace(input_of("recognize"), truth="ab" * 500)
    assert long.follows == "answer"
    assert long.notes[0].startswith("The truth needs 1000 frames")


def test_a_true_caption(model_of: Find) -> None:
    trace = model_of("caption").trace(input_of("caption"), truth=["bar a a", "a line"])
    assert trace.losses_of[:-1] == ["bar", "a", "a"]
    assert trace.truth == "bar a a / a line"


def test_forecasts_stand_beside_what_came(model_of: Find) -> None:
    trace = model_of("forecast").trace(waves(20))
    (name, found), *_ = trace.forecasts.items()
    assert name == "a+1"
    assert found.rows == list(range(found.rows[0], found.rows[0] + len(trace.tokens)))
    known = [row for row in found.rows if row < 20]
    close(torch.tensor(found.truth[: len(known)]), torch.from_numpy(waves(20)[known, 0]).float())
    assert np.isnan(found.truth[len(known) :]).all()
    more = model_of("forecast").trace(waves(20), truth=waves(21))  # the true value after the last row is known too
    assert not np.isnan(more.forecasts[name].truth).any()
    assert more.truth is not None
    assert float(more.losses[-1]) > 0 == float(trace.losses[-1])
    answer = model_of("forecast").trace(waves(20), target="answer")
    assert answer.follows == "answer"


def test_a_language_models_own_choice_on_request(model_of: Find) -> None:
    own, true = (model_of("generate-lstm").trace("3 and", target=target) for target in ("answer", "truth"))
    assert own.losses_of == [row[0][0] for row in own.guesses]
    assert bool((own.losses <= true.losses + 1e-6).all())
    assert torch.equal(true.losses, model_of("generate-lstm").trace("3 and").losses)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("classify", {"target": "truth"}, "The truth of this input is not known. Give it: truth=…, or inspect"),
        ("classify", {"target": "trouth"}, "Unknown target 'trouth'. Did you mean 'truth'? Choices: answer, truth."),
        ("tag-crf", {"truth": "O O"}, "The truth has 2 tags. Expected one for each of 8 words."),
        ("forecast", {"truth": [[1.0]]}, "The truth has shape (1, 1). Expected a row for each row of the input, with "),
    ],
)
def test_mistakes(kind: str, options: dict[str, Any], message: str, model_of: Find) -> None:
    with pytest.raises(UserError) as error:
        model_of(kind).trace(input_of(kind), **options)
    assert str(error.value).startswith(message)


def test_a_label_that_the_model_does_not_know_is_said(model_of: Find) -> None:
    trace = model_of("classify").trace(TEXT, truth="god")
    assert (trace.truth, trace.follows, trace.right) == ("god", "answer", False)
    assert trace.notes[0].startswith("The model does not know the truth, so the answer's loss is shown. Unknown label")


@pytest.mark.parametrize("kind", ["classify", "tag-crf", "forecast", "translate-luong", "recognize", "caption"])
def test_an_example_brings_its_truth(kind: str, run_of: Callable[[str], Path]) -> None:
    path = str(run_of(kind))
    model = api.load(path)
    found = model.tracer.example(model.task.read(model.config).valid, 0)
    assert isinstance(found, Example)
    inspection = Inspection(Asked({path: model}, example=0))
    trace = inspection.asked.trace()
    assert trace.follows == "truth"
    assert trace.truth is not None
    shown = inspection.view("overview", {})
    assert (shown["truth"], shown["follows"], shown["right"]) == (trace.truth, "truth", trace.right)
    own = inspection.view("overview", {"o.target": "answer"})
    assert (own["truth"], own["follows"]) == (trace.truth, "answer")
    if inspection.asked.text is not None:
        other = inspection.view("overview", {"text": KINDS[kind][3]})
        assert other["truth"] is None  # another text, whose truth nobody knows


def test_words_are_weighed_by_leaving_them_out(model_of: Find) -> None:
    """The scores equal those of the texts with one word removed."""
    model = model_of("classify")
    found = model.trace(TEXT, truth="bad").attribution
    assert (found.label, found.words, found.words_each) == ("bad", TEXT.split(), 1)
    for place, score in enumerate(found.scores):
        words = TEXT.split()
        del words[place]
        chances = [model.predict(text).probabilities["bad"] for text in (TEXT, " ".join(words))]
        assert score == pytest.approx(float(np.log(chances[0]) - np.log(chances[1])), abs=1e-5)
    assert str(found).splitlines()[0] == "decrease of log p(bad) without each word"
    assert model.trace("fine").attribution.words == ["fine"]


def test_a_long_texts_words_are_weighed_in_groups(model_of: Find) -> None:
    found = model_of("classify").trace("one fine " * 500).attribution
    assert (len(found.words), found.words_each) == (334, 3)
    assert found.words[0] == "one fine one"
    with pytest.raises(UserError, match=r"This model has no word attribution\."):
        _ = model_of("generate-lstm").trace("3").attribution


def test_a_truth_that_the_model_does_not_know_is_said_in_the_picture(model_of: Find, tmp_path: Path) -> None:
    model = model_of("classify")
    figure = model.trace(TEXT, truth="unheard").figure("losses")
    assert figure.axes[0].get_title().endswith("(truth: unheard)")
    assert "; the loss of the answer is " in figure.axes[0].get_xlabel()
    known = next(iter(model.predict(TEXT).probabilities))
    assert "; the loss is " in model.trace(TEXT, truth=known).figure("losses").axes[0].get_xlabel()
    asked = Asked({"a": model}, TEXT, options={"truth": "unheard"})
    with pytest.warns(Note, match="^The model does not know the truth, so the answer's loss is shown"):
        asked.draw(tmp_path, only=["losses"])
    with pytest.warns(Note, match="^The model does not know the truth, so the answer's loss is shown"):
        save_report(Inspection(asked), tmp_path / "a.html")


@pytest.mark.parametrize("width", [None, "column", 2.0])
def test_a_title_never_cuts_the_whole_truth(width: Any, model_of: Find) -> None:
    long = " ".join(["five three"] * 4)
    for kind in ("losses", "attention", "beams"):
        figure = model_of("translate-luong").trace("3 5", truth=long).figure(kind, width=width)
        title = figure.axes[0].get_title() if kind == "losses" else figure.get_suptitle()
        assert "truth: five" in title


def test_a_forecast_beside_its_truth_has_the_same_name(model_of: Find) -> None:
    assert model_of("forecast").trace(waves(20)).answer.startswith("then a+1 ")
    known = model_of("forecast").trace(waves(20), truth=waves(21))
    assert known.truth is not None
    assert known.answer.split()[0] == known.truth.split()[0] == "a+1"
