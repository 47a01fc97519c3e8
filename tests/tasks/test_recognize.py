"""`recognize` from Python: it learns recordings, lines and frames, searches, cuts, streams, and scores."""

from __future__ import annotations

import io
import itertools
import json
import re
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

import unrolled
from tests.tasks.recognition import (
    RATE,
    SMALL,
    frames,
    manifest,
    marks,
    tone,
    words,
    write_frames,
    write_lines,
    write_recordings,
)
from tests.tolerances import assert_close
from unrolled import Model, api
from unrolled.data.readers.media.wav import SoundPipe
from unrolled.data.signals.line_images import prepared_line
from unrolled.errors import Note, UserError
from unrolled.jobs import TrainingJob
from unrolled.search import NGram
from unrolled.tasks.recognize.batches import features_batch
from unrolled.tasks.recognize.config import RecognizeConfig
from unrolled.tasks.recognize.task import Recognize
from unrolled.tasks.runner import Request

CAUSAL: dict[str, Any] = {"model.bidirectional": False, "train.max_steps": 300}
WRITERS: dict[str, Callable[[Path, list[str]], Path]] = {
    "audio": lambda folder, texts: write_recordings(folder, texts),
    "line": lambda folder, texts: write_lines(folder, texts),
    "frames": lambda folder, texts: write_frames(folder / "train.npz", texts),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recognize")


def learn(place: Path, kind: str, name: str, **changes: Any) -> Model:
    file = (
        WRITERS[kind](place / name, words(80)) if kind != "frames" else write_frames(place / f"{name}.npz", words(80))
    )
    settings = {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}}
    return unrolled.train("recognize", train=file, valid=file, out=place / f"run-{name}", set=settings, quiet=True)


@pytest.fixture(scope="module")
def listener(place: Path) -> Model:
    return learn(place, "audio", "listener")


@pytest.fixture(scope="module")
def causal(place: Path) -> Model:
    return learn(place, "audio", "causal", **CAUSAL)


@pytest.fixture(scope="module")
def reader(place: Path) -> Model:
    return learn(place, "line", "reader")


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


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_it_overfits_eight_examples(kind: str, tmp_path: Path) -> None:
    """Transcripts drawn at random: nothing but learning by heart gets them right."""
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("abcd"), 5)) for _ in range(8)]
    table = [random.standard_normal((20, 6)).astype(np.float32) for _ in texts]
    file = tmp_path / "eight.npz"
    np.savez(file, frames=np.concatenate(table), lengths=[20] * 8, texts=np.array(texts))
    settings = {**SMALL, "model.kind": kind, "train.lr": 0.01 if kind == "recurrent" else 0.003, "train.max_steps": 200}
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(file)["exact_match"] == 1.0


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("audio", {}),
        ("audio", {"model.bidirectional": False}),
        ("line", {}),
        ("line", {"model.bidirectional": False, "model.channels": [4, 4], "model.strides": [3, 2]}),
        ("frames", {}),
        ("frames", {"model.kind": "transformer"}),
        ("audio", {"model.kind": "transformer", "model.bidirectional": False}),
    ],
)
def test_batched_equals_single(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Padding changes no number: neither in the convolutions nor behind them."""
    file = WRITERS[kind](tmp_path, ["abc", "a b c a b c", "c"])
    job = TrainingJob(
        api.configure("recognize", [], {**SMALL, **changes, "data.train": str(file), "data.valid": str(file)})
    )
    model = job.model
    store = job.task._store(job.config, job.assets, job.data.train)  # type: ignore[attr-defined]
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
    job = TrainingJob(api.configure("recognize", [], {**SMALL, "data.train": str(file), "data.valid": str(file)}))
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
    settings = {**SMALL, "train.lr": 0.005, "model.front": [16]}
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.evaluate(file)["cer"] < 0.05
    assert model.assets.reader.shape == (8, 8)


def test_phonemes_are_symbols(tmp_path: Path) -> None:
    texts = [" ".join({"a": "AH", "b": "B", "c": "SH"}[c] for c in text.replace(" ", "")) for text in words(60)]
    table = [frames(text.replace(" ", ""), i) for i, text in enumerate(words(60))]
    file = tmp_path / "phones.npz"
    np.savez(file, frames=np.concatenate(table), lengths=[len(one) for one in table], texts=np.array(texts))
    settings = {**SMALL, "data.level": "symbols"}
    model = unrolled.train("recognize", train=file, valid=file, out=tmp_path / "run", set=settings, quiet=True)
    assert model.predict(frames("abca")).text == "AH B SH AH"
    lexicon = tmp_path / "words.txt"
    lexicon.write_text("bush B AH SH\nash AH SH\n")
    assert model.predict(frames("bacac"), lexicon=str(lexicon)).text == "bush ash"
    scores = model.evaluate(file)
    assert scores["cer"] == scores["wer"] < 0.05


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


def test_streams_equal_files_however_they_are_cut(causal: Model) -> None:
    sound = tone("abc ca b")
    whole = causal.predict(sound, rate=RATE)
    assert whole.text.replace(" ", "") == "abccab"
    answers = []
    for seed in range(3):
        random, at, told = np.random.default_rng(seed), 0, [""]
        with causal.stream(rate=RATE) as stream:
            while at < len(sound):
                step = int(random.integers(1, 700))
                told.append(stream.feed(sound[at : at + step]))
                at += step
            answers.append(stream.finish())
        assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(told))
    assert answers[0] == answers[1] == answers[2]  # to the bit
    assert answers[0].text == whole.text
    assert answers[0].labels == whole.labels
    assert answers[0].score == pytest.approx(whole.score, abs=1e-3)


def test_a_stream_with_a_lexicon(causal: Model) -> None:
    with causal.stream(rate=RATE, lexicon=["abc", "ca", "b"]) as stream:
        for part in np.array_split(tone("abc ca b"), 9):
            stream.feed(part)
        found = stream.finish()
    assert found.text == "abc ca b"
    assert [word.text for word in found.words] == ["abc", "ca", "b"]


def test_a_long_file_streams_through_a_causal_model(causal: Model, tmp_path: Path) -> None:
    sound = np.concatenate([tone("abc ca b", seed=i) for i in range(4)])
    soundfile.write(tmp_path / "long.wav", sound, RATE)
    streamed = causal.predict(str(tmp_path / "long.wav"), window=1)
    whole = causal.predict(str(tmp_path / "long.wav"), window=100)
    assert streamed.text == whole.text
    assert streamed.labels == whole.labels


def test_what_cannot_stream_says_why(listener: Model, reader: Model, causal: Model) -> None:
    with pytest.raises(UserError, match="reads from both ends"):
        listener.stream()
    with pytest.raises(UserError, match="reads from both ends"):
        reader.stream()
    with pytest.raises(UserError, match="each step's best label, or words of a lexicon"):
        causal.stream(beam=5)


def test_a_model_comes_back_from_its_file(listener: Model, place: Path) -> None:
    again = api.load(place / "run-listener")
    sounds = [tone(text) for text in words(5, seed=5)]
    assert again.predict(sounds, rate=RATE) == listener.predict(sounds, rate=RATE)


def test_a_model_learns_new_letters(reader: Model, tmp_path: Path, place: Path) -> None:
    file = write_lines(tmp_path, ["ab", "bc"])
    file.write_text(file.read_text().replace("bc", "bd"))
    settings = {**SMALL, "train.max_steps": 2}
    config = api.configure("recognize", [], {**settings, "data.train": str(file), "data.valid": str(file)})
    more = TrainingJob(config, init=place / "run-reader").run(tmp_path / "run", quiet=True)
    assert more.assets.labels.names == (*reader.assets.labels.names, "d")


def test_the_embedded_data_is_said_plainly() -> None:
    data = Recognize().read(RecognizeConfig())
    assert "the scans are real, the lines are not" in data.source
    assert len(data.train) == 1600
    train = {example.input.tobytes() for example in data.train}
    assert not any(example.input.tobytes() in train for example in data.valid)


def test_samples_say_their_rate(listener: Model, causal: Model) -> None:
    fast = tone("ab c", 2 * RATE)
    with pytest.raises(UserError) as error:
        listener.predict(fast)
    assert str(error.value) == (
        "The input is samples, which do not say how many are a second. Give rate (--rate); the model reads 8000."
    )
    assert listener.predict(fast, rate=2 * RATE).text == "ab c"
    assert listener.predict((fast, 2 * RATE)).text == "ab c"
    heard = listener.predict([(fast, 2 * RATE), (tone("b"), RATE), tone("cab")], rate=RATE)
    assert [one.text for one in heard] == ["ab c", "b", "cab"]
    for rate in (0, -8000, True, "8000"):
        with pytest.raises(UserError, match=r"rate=.* is not a number of samples a second\. Use 8000, 16000"):
            listener.predict(fast, rate=rate)
    with pytest.raises(UserError, match=r"A stream of samples does not say how many are a second\. Give it once"):
        causal.stream()
    assert listener.trace(fast, rate=2 * RATE).figure("frames") is not None


def test_a_rate_that_nothing_needs(listener: Model, reader: Model, place: Path) -> None:
    soundfile.write(place / "own.wav", tone("ab"), RATE)
    with pytest.raises(UserError, match=r"rate=8000 is for arrays of samples and raw files, and there are none"):
        listener.predict(str(place / "own.wav"), rate=RATE)
    with pytest.raises(UserError, match="is for arrays of samples"):
        reader.predict(marks("ab"), rate=RATE)


def test_streams_at_another_rate(causal: Model) -> None:
    fast = tone("abc ca b", 2 * RATE)
    whole = causal.predict(fast, rate=2 * RATE).text
    answers = []
    for pieces in (3, 50):
        with causal.stream(rate=2 * RATE) as stream:
            for part in np.array_split(fast, pieces):
                stream.feed(part)
            answers.append(stream.finish().text)
    assert answers == [whole, whole]
    assert whole.replace(" ", "") == "abccab"


def test_words_have_confidences(listener: Model) -> None:
    clear = listener.predict(tone("abc ca b"), rate=RATE)
    assert len(clear.words) == 3
    assert all(word.confidence is not None and 0.5 < word.confidence <= 1 for word in clear.words)
    loud = np.random.default_rng(0).standard_normal(len(tone("abc ca b"))).astype(np.float32) * 0.3
    unclear = listener.predict(tone("abc ca b") + loud, rate=RATE)
    assert all(
        word.confidence < min(other.confidence or 0 for other in clear.words)
        for word in unclear.words
        if word.confidence is not None
    )
    for options in ({"beam": 20, "n_best": 3}, {"lexicon": ["abc", "ca", "b"], "n_best": 3}):
        found = listener.predict(tone("abc ca b"), rate=RATE, **options)
        assert all(word.confidence is not None for one in (found, *found.others) for word in one.words)


def pipe(sound: Any, rate: int = RATE, *, declared: int | None = None) -> io.BytesIO:
    """A wav file as a program writes it into a pipe: its length is not known when the header is written."""
    data = (sound * 32767).astype("<i2").tobytes()
    size = len(data) if declared is None else declared
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + size & 0xFFFFFFFF, b"WAVE", b"fmt ", 16, 1, 1, rate,
                       2 * rate, 2, 16, b"data", size)  # fmt: skip
    return io.BytesIO(head + data)


class Trickle(io.BytesIO):
    """Bytes that come a few at a time."""

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(700)


def piped(model: Model, file: io.BytesIO, format: Any = "text", **options: Any) -> list[str]:
    return list(model.runner.run(Request(raw=file, format=format), **options))


def test_sound_from_a_pipe_is_text_as_it_comes(causal: Model) -> None:
    sound = tone("abc ca b")
    expected = causal.predict(sound, rate=RATE).text
    for declared in (None, 0, 0x7FFFFFFF, 0xFFFFFFFF):
        pieces = piped(causal, Trickle(pipe(sound, declared=declared).getvalue()))
        assert "".join(pieces) == f"{expected}\n"
        assert len([piece for piece in pieces if piece]) > 4  # not all at the end
    raw = Trickle((sound * 32767).astype("<i2").tobytes())
    assert "".join(piped(causal, raw, rate=RATE)) == f"{expected}\n"
    (record,) = map(json.loads, filter(None, piped(causal, pipe(sound), "jsonl")))
    assert (record["input"], record["text"], record["unit"]) == ("-", expected, "seconds")
    with pytest.warns(Note, match="With a lexicon words may change until the end: the text comes then"):
        assert "".join(piped(causal, pipe(sound), lexicon=["abc", "ca", "b"])) == "abc ca b\n"


def test_sound_from_a_pipe_in_windows(listener: Model, tmp_path: Path) -> None:
    sound = np.concatenate([tone("abc ca b", seed=i) for i in range(3)])
    soundfile.write(tmp_path / "long.wav", sound, RATE)
    whole = listener.predict(str(tmp_path / "long.wav"), window=1.2)
    with pytest.warns(Note, match=r"needs the end of what it reads: text comes in windows of up to 1\.2 seconds"):
        pieces = piped(listener, pipe(sound, declared=0), window=1.2)
    assert "".join(pieces) == f"{whole.text}\n"
    assert len(pieces) > 3
    soundfile.write(tmp_path / "long.flac", sound, RATE)
    packed = io.BytesIO((tmp_path / "long.flac").read_bytes())
    (record,) = map(json.loads, filter(None, piped(listener, packed, "jsonl", window=1.2)))
    assert record["text"] == whole.text
    assert [word["confidence"] for word in record["words"]] == pytest.approx(
        [word.confidence for word in whole.words], abs=1e-2
    )


def test_pipes_that_hold_no_recording(listener: Model, reader: Model) -> None:
    with pytest.raises(
        UserError, match=r"Standard input is not a recording: it begins with b'test'\. Expected a wav file"
    ):
        piped(listener, io.BytesIO(b"test0.wav\n"))
    with pytest.raises(UserError, match=r"has 8,000 samples a second, and --rate says 16,000\. Leave --rate out"):
        piped(listener, pipe(tone("a")), rate=16000)
    with pytest.raises(UserError, match="a header that cannot be read"):
        piped(listener, io.BytesIO(b"RIFF\0\0\0\0WAVEdata"))
    file = io.BytesIO()
    Image.fromarray(marks("ab c")).save(file, "PNG")
    assert "".join(piped(reader, io.BytesIO(file.getvalue()))) == "ab c\n"
    with pytest.raises(UserError, match="Standard input is damaged or cut off"):
        piped(reader, io.BytesIO(b"\x89PNG"))


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_kind_of_wav_is_read_from_a_pipe(subtype: str, channels: int) -> None:
    sound = np.stack([tone("ab", seed=i) for i in range(channels)], axis=1)
    file = io.BytesIO()
    soundfile.write(file, sound, RATE, subtype=subtype, format="WAV")
    expected, _ = soundfile.read(io.BytesIO(file.getvalue()), dtype="float32", always_2d=True)
    read = np.concatenate(list(SoundPipe(Trickle(file.getvalue()))))
    np.testing.assert_allclose(read, expected.mean(axis=1), atol=1e-6)


def test_a_page_is_no_line(reader: Model) -> None:
    line = np.kron(marks("ab c cab abc", 12), np.ones((2, 2), dtype=np.uint8))
    line[8:16] = np.where(np.arange(line.shape[1]) % 12 < 9, 0, line[8:16])  # letters that stand close
    page = np.concatenate([np.pad(line, ((6, 6), (0, 0)), constant_values=255)] * 6)
    with pytest.warns(
        Note, match=r"The picture seems to hold 6 lines of text\. This model reads one line at a time: cut"
    ):
        reader.predict(page)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader.predict(line)


def test_weights_are_tuned_on_a_file(listener: Model, place: Path) -> None:
    """The language model knows these sentences only: weighed too much, it hears them everywhere."""
    texts = ["abc ca b", "b ca", "cab b abc"]
    test = write_recordings(place / "tuned", texts, "tuned")
    lm = NGram.train(["b b b"] * 20 + ["ca"], order=2)
    given: dict[str, Any] = {"lexicon": ["abc", "ca", "b", "cab"], "lm": lm}
    before = listener.evaluate(test, **given, lm_weight=50.0)
    assert before["wer"] > 0.1
    scores = listener.evaluate(test, **given, tune=True)
    assert scores["wer"] < before["wer"]
    weight, bonus = re.fullmatch(r"--lm-weight (\S+) --word-bonus (\S+)", scores["tuned"]).groups()  # type: ignore[union-attr]
    again = listener.evaluate(test, **given, lm_weight=float(weight), word_bonus=float(bonus))
    assert again["searches"]["lexicon + lm"] == scores["searches"]["lexicon + lm"]
    with pytest.raises(UserError, match=r"tune is for lm_weight and word_bonus, which need a lexicon"):
        listener.evaluate(test, tune=True)


def test_a_picture_of_dots_is_one_line() -> None:
    dots = np.full((12, 30), 255, dtype=np.uint8)
    dots[np.arange(12), np.arange(12)] = 0
    assert prepared_line(dots, 16).lines == 1
