"""`recognize` from Python: it learns recordings, lines and frames, searches, cuts, streams, and scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import soundfile
import torch

import unrolled
from tests.fitting import fitting
from tests.tasks.recognition import (
    RATE,
    SMALL,
    frames,
    manifest,
    marks,
    tone,
    words,
    write_lines,
    write_recordings,
)
from tests.tasks.recognize.conftest import WRITERS
from tests.tolerances import assert_close
from unrolled import Model, UserError, api
from unrolled.jobs import TrainingJob
from unrolled.search import NGram
from unrolled.tasks.recognize import features as features_module
from unrolled.tasks.recognize import predict
from unrolled.tasks.recognize.batches import feature_store, features_batch


def test_recordings_are_heard(listener: Model, place: Path) -> None:
    test = write_recordings(place / "test", words(30, seed=1), "test")
    scores = listener.evaluate(test)
    assert scores["cer"] < 0.03
    assert scores["exact_match"] > 0.8
    assert scores["search"] == "greedy"
    assert list(scores["searches"]) == ["greedy", "beam"]
    assert json.loads(json.dumps(scores)) == scores


def test_scores_are_jiwers(listener: Model, place: Path) -> None:
    texts = ["abc cab", "b", "ca ca"]
    heard = ["abc cab", "bb", "ca"]
    test = manifest(place / "wrong.tsv", [(f"{i}.wav", text) for i, text in enumerate(texts)])
    for i, text in enumerate(heard):
        soundfile.write(place / f"{i}.wav", tone(text), RATE)
    outputs = [answer.text for answer in listener.predict([str(place / f"{i}.wav") for i in range(3)])]
    scores = listener.evaluate(test)
    assert scores["cer"] == pytest.approx(jiwer.cer(texts, outputs))
    assert scores["wer"] == pytest.approx(jiwer.wer(texts, outputs))
    assert scores["cer"] > 0


def test_lines_are_read(reader: Model) -> None:
    assert [a.text for a in reader.predict([marks("ab c"), marks("ccb"), marks("a a a")])] == ["ab c", "ccb", "a a a"]


def test_a_multi_dimensional_network_reads_lines(tmp_path: Path) -> None:
    """It learns, comes back from its file with the same answer, and its trace says what it cannot show."""
    texts = ["a", "b", "c", "ab", "ca", "bc", "cb", "ba"]
    file = write_lines(tmp_path, texts)
    small = {"model.kind": "mdlstm", "model.channels": [4, 8], "model.strides": [2, 1], "model.hidden_size": 8}
    more = {"model.peephole": "current", "train.max_steps": 40, "train.eval_every": 40}
    settings = fitting("recognize", {**SMALL, **small, **more}, data__kind="line")
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(file)["cer"] < 0.1
    picture = marks(texts[0])
    found = model.predict(picture)
    assert unrolled.load(tmp_path / "run").predict(picture) == found
    trace = model.trace(picture)
    assert trace.answer == found.text
    assert set(trace.kinds) >= {"frames", "gradients"}
    with pytest.raises(UserError, match="A multi-dimensional LSTM has a state for each pixel and direction, not for "):
        trace.figure("gates")


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_it_overfits_eight_examples(kind: str, tmp_path: Path) -> None:
    """Transcripts drawn at random: nothing but learning by heart gets them right."""
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("abcd"), 5)) for _ in range(8)]
    table = [random.standard_normal((20, 6)).astype(np.float32) for _ in texts]
    file = tmp_path / "eight.npz"
    np.savez(file, frames=np.concatenate(table), lengths=[20] * 8, texts=np.array(texts))
    rate = 0.01 if kind == "recurrent" else 0.003
    keys = {**SMALL, "model.kind": kind, "train.lr": rate, "train.max_steps": 200}
    settings = fitting("recognize", keys, data__kind="frames")
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(file)["exact_match"] == 1.0


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("audio", {}),
        ("audio", {"model.bidirectional": False}),
        ("line", {}),
        ("line", {"model.bidirectional": False, "model.channels": [4, 4], "model.strides": [3, 2]}),
        ("line", {"model.kind": "mdlstm", "model.num_layers": 2}),
        ("line", {"model.kind": "mdlstm", "model.form": "parallel"}),
        ("frames", {}),
        ("frames", {"model.kind": "transformer"}),
        ("audio", {"model.kind": "transformer", "model.bidirectional": False}),
    ],
)
def test_batched_equals_single(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Padding changes no number: neither in the convolutions nor behind them."""
    file = WRITERS[kind](tmp_path, ["abc", "a b c a b c", "c"])
    keys = fitting("recognize", {**SMALL, **changes}, data__kind=kind)
    job = TrainingJob(api.configure("recognize", [], {**keys, "data.train": str(file), "data.valid": str(file)}))
    model = job.model
    config: Any = job.config
    store = feature_store(config, job.assets, job.data.train)
    features = [job.assets.reader.features(store[i]) for i in range(3)]
    model.network.eval()
    with torch.no_grad():
        together, lengths = model.network(features_batch(features))
        for row, one in enumerate(features):
            alone, (length,) = model.network(features_batch([one]))
            assert int(lengths[row]) == int(length) == alone.shape[1]
            assert_close(together[row, : int(length)], alone[0])


def test_the_loss_is_torchs(tmp_path: Path) -> None:
    file = WRITERS["frames"](tmp_path, words(6))
    keys = fitting("recognize", SMALL, data__kind="frames")
    job = TrainingJob(api.configure("recognize", [], {**keys, "data.train": str(file), "data.valid": str(file)}))
    batches = job.task.batches(job.config, job.assets, job.data.valid, training=False)
    batch = batches[0]
    loss = job.task.loss(job.model.network, batch, None)
    log_probs, lengths = job.model.network(batch)
    expected = torch.nn.functional.ctc_loss(
        log_probs.transpose(0, 1), batch.targets, lengths, batch.more["target_lengths"], reduction="sum"
    )
    assert_close(loss.sum, expected)
    assert int(loss.count) == sum(len(job.assets.labels.ids(e.text)) for e in job.data.valid)


def test_small_images_in_sequence_are_read(tmp_path: Path) -> None:
    """Lip-reading's setup: each step is an image."""
    texts = words(60)
    table = [np.kron(frames(text, i).reshape(-1, 2, 2), np.ones((1, 4, 4))) for i, text in enumerate(texts)]
    file = tmp_path / "film.npz"
    np.savez(file, frames=np.concatenate(table), lengths=[len(one) for one in table], texts=np.array(texts))
    settings = fitting("recognize", {**SMALL, "train.lr": 0.005, "model.front": [16]}, data__kind="frames")
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(file)["cer"] < 0.05
    assert model.assets.reader.shape == (8, 8)


def test_letters_are_no_kind_of_references(listener: Model, place: Path) -> None:
    with pytest.raises(UserError) as error:
        listener.evaluate(place / "listener" / "train.tsv", reference_kind="labels")
    assert str(error.value) == (
        "reference_kind=labels tells words from labels, and this model's labels are letters. Leave it out."
    )


def test_times_are_where_the_letters_are(listener: Model, reader: Model) -> None:
    heard = listener.predict(tone("ab c"), rate=RATE)
    assert heard.unit == "seconds"
    assert [word.text for word in heard.words] == ["ab", "c"]
    # a is from 0.05 to 0.15, b from 0.2 to 0.3, c from 0.45 on
    starts = {label.text: label.start for label in heard.labels if label.text != " "}
    for letter, start in {"a": 0.05, "b": 0.2, "c": 0.45}.items():
        assert abs(starts[letter] - start) < 0.12
    seen = reader.predict(np.kron(marks("ab c"), np.ones((3, 3), dtype=np.uint8)))
    assert seen.text == "ab c"
    assert seen.unit == "pixels"
    places = {label.text: label.start for label in seen.labels if label.text != " "}
    for letter, start in {"a": 12, "b": 42, "c": 102}.items():
        assert abs(places[letter] - start) < 24


def test_a_lexicon_and_a_model_of_words_decide(listener: Model, place: Path) -> None:
    lexicon = ["abc", "cab", "b"]
    (place / "words.txt").write_text("\n".join(lexicon) + "\nxyz\n")
    sound = tone("abb cab")  # no such word
    assert listener.predict(sound, rate=RATE).text == "abb cab"
    with pytest.warns(UserWarning, match="1 words of the lexicon were left out"):
        found = listener.predict(sound, rate=RATE, lexicon=str(place / "words.txt"))
    assert set(found.text.split()) <= set(lexicon)
    found = listener.predict(sound, rate=RATE, lexicon=lexicon, unknown_penalty=-1.0)
    assert found.text == "abb cab"
    assert [word.known for word in found.words] == [False, True]
    assert all(word.known is None for word in listener.predict(sound, rate=RATE).words)
    lm = NGram.train(["b cab"] * 5 + ["abc b"], order=2)
    lm.save(place / "lm.arpa")
    strong = listener.predict(sound, rate=RATE, lexicon=lexicon, lm=str(place / "lm.arpa"), lm_weight=100.0)
    assert strong.text == "b cab"


def counted(function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """The function, which writes its name into a list whenever it is called."""

    def call(*arguments: Any) -> Any:
        calls.append(function.__name__)
        return function(*arguments)

    return call


@pytest.mark.parametrize("kind", ["audio", "line"])
def test_a_drawn_input_is_read_once(
    kind: str, listener: Model, reader: Model, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is that without a picture; the file is decoded once, and the network runs once."""
    model = {"audio": listener, "line": reader}[kind]
    file = place / {"audio": "listener/train0.wav", "line": "reader/train0.png"}[kind]
    expected = model.predict(str(file), n_best=2, beam=20)
    decoded: list[str] = []
    for module, name in (
        (predict, "audio_blocks"),
        (features_module, "read_line"),
        (features_module, "read_audio"),
    ):
        monkeypatch.setattr(module, name, counted(getattr(module, name), decoded))
    passes: list[int] = []
    handle = model.network.register_forward_hook(lambda *_: passes.append(1))
    answer, figure = model.runner.answer_and_drawing(str(file), {"n_best": 2, "beam": 20})  # type: ignore[attr-defined]
    handle.remove()
    assert answer == expected
    assert decoded == [{"audio": "audio_blocks", "line": "read_line"}[kind]]
    assert passes == [1]
    drawn = next(image for axis in figure.axes for image in axis.images)
    signal = model.assets.reader.base(model.assets.reader.given(str(file)))
    assert set(drawn.get_array().shape[:2]) == set(signal.shape)


def test_an_input_of_several_windows_is_drawn_whole(listener: Model, place: Path) -> None:
    file = str(place / "listener" / "train0.wav")
    answer, figure = listener.runner.answer_and_drawing(file, {"window": 0.3})  # type: ignore[attr-defined]
    assert answer == listener.predict(file, window=0.3)
    _, whole = listener.runner.answer_and_drawing(file, {})  # type: ignore[attr-defined]
    assert figure.axes[1].get_xlim() == whole.axes[1].get_xlim()


def test_n_best_lists_begin_with_the_best(listener: Model) -> None:
    found = listener.predict(tone("ab"), rate=RATE, n_best=3, beam=20)
    assert found.text == "ab"
    assert len(found.others) == 2
    assert found.score >= found.others[0].score >= found.others[1].score
    assert len({found.text, *(other.text for other in found.others)}) == 3


def test_evaluation_tells_what_each_search_gives(listener: Model, place: Path) -> None:
    test = write_recordings(place / "ways", words(10, seed=3), "ways")
    vocabulary = sorted({word for text in words(10, seed=3) for word in text.split()})
    lm = NGram.train(words(40), order=2)
    scores = listener.evaluate(test, lexicon=vocabulary, lm=lm, beam=50)
    assert list(scores["searches"]) == ["greedy", "beam", "lexicon", "lexicon + lm"]
    assert scores["search"] == "lexicon + lm"
    assert scores["cer"] == scores["searches"]["lexicon + lm"]["cer"]
    assert "open lexicon" in listener.evaluate(test, lexicon=vocabulary, unknown_penalty=-5.0)["searches"]


def test_a_long_recording_is_read_in_windows_cut_at_silence(listener: Model, tmp_path: Path) -> None:
    text = "abc ca b bb a cab a cc abc ca b a cab"
    soundfile.write(tmp_path / "long.flac", tone(text), RATE)
    found = listener.predict(str(tmp_path / "long.flac"), window=1.2)
    assert found.text == text
    ends = [word.end for word in found.words]
    assert ends == sorted(ends)
    before = len(tone(text.removesuffix("cab"))) / RATE
    assert abs(found.words[-1].start - before) < 0.12


def test_windows_never_hold_the_whole_file(listener: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "long.wav", np.tile(tone("abc ab"), 60), RATE)  # 55 seconds
    sizes: list[int] = []
    mel = type(listener.assets.reader.mel)
    whole = mel.__call__

    def spied(self: Any, samples: Any) -> Any:
        sizes.append(len(samples))
        return whole(self, samples)

    monkeypatch.setattr(mel, "__call__", spied)
    listener.predict(str(tmp_path / "long.wav"), window=5)
    assert len(sizes) > 11
    assert max(sizes) <= 5 * RATE


def test_a_wide_line_is_cut_at_white_space(reader: Model) -> None:
    text = " ".join(["abc", "ca", "bbc", "a"] * 6)
    assert reader.predict(marks(text), window=20).text == text


def test_other_rates_and_channels(listener: Model, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "fast.wav", np.stack([tone("ab c", 44_100)] * 2, axis=1), 44_100)
    with pytest.warns(UserWarning, match="has 2 channels: their mean is read"):
        assert listener.predict(str(tmp_path / "fast.wav")).text == "ab c"
    for ending in ("flac", "ogg", "mp3"):
        soundfile.write(tmp_path / f"x.{ending}", tone("cab", 16_000), 16_000)
        assert listener.predict(str(tmp_path / f"x.{ending}")).text == "cab"


def test_silence_says_nothing(listener: Model, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "quiet.wav", np.zeros(RATE, dtype=np.float32), RATE)
    soundfile.write(tmp_path / "none.wav", np.zeros(0, dtype=np.float32), RATE)
    with pytest.warns(UserWarning, match=r"quiet\.wav is silent: it says nothing"):
        assert listener.predict(str(tmp_path / "quiet.wav")).text == ""
    loud = tone("ab", RATE)
    soundfile.write(tmp_path / "both.wav", np.stack([loud, -loud], axis=1), RATE)
    with pytest.warns(UserWarning, match=r"both\.wav's mean is silent: it says nothing"):
        assert listener.predict(str(tmp_path / "both.wav")).text == ""
    with pytest.warns(UserWarning, match=r"none\.wav is empty: it says nothing"):
        assert listener.predict(str(tmp_path / "none.wav")).text == ""
