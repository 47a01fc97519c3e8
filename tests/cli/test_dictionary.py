"""Words of a lexicon, from the command line and from Python, with stored and freshly trained models."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import jiwer
import pytest

import unrolled
from tests.cli.test_generate import call
from tests.tasks.translate.conftest import SMALL
from unrolled import Model, UserError
from unrolled.search import Lexicon, NGram
from unrolled.tasks.recognize.search import RecognitionOptions, loaded
from unrolled.tasks.shared.dictionary import with_dictionary
from unrolled.tasks.shared.writing import WritingOptions

STORED = Path(__file__).parents[1] / "compat" / "2026-11"
NUMBERS = ["three", "five", "seven", "nine"]
PHONES = {"dog": "D AO G", "dock": "D AO K", "bites": "B AY T S", "buys": "B AY Z", "man": "M AE N", "men": "M EH N"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "words.txt").write_text("three\nseven\n")
    (folder / "all.txt").write_text("\n".join(NUMBERS))
    (folder / "said.txt").write_text("".join(f"{word} {phones}\n" for word, phones in PHONES.items()))
    (folder / "pairs.tsv").write_text("3 5\tfive three\n7\tseven\n5 5\tfive five\n")
    for name, texts in {"sevens": ["seven seven", "seven"], "man": ["dog bites man"] * 5 + ["man buys dog"]}.items():
        NGram.train([*texts, *NUMBERS, *PHONES], order=2).save(folder / f"{name}.arpa")
    return folder


@pytest.fixture(scope="module")
def phones(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model that has hardly learnt which phones follow which."""
    folder = tmp_path_factory.mktemp("phones")
    texts = ["D AO G B AY T S M AE N", "D AO K B AY Z M EH N", "M AE N B AY T S D AO G", "M EH N B AY Z D AO K"]
    (folder / "train.tsv").write_text("".join(f"{i} {i + 1}\t{text}\n" for i, text in enumerate(texts * 3)))
    keys = {**SMALL, "data.level": "symbols", "train.max_steps": 2}
    return unrolled.train("translate", train=folder / "train.tsv", out=folder / "run", set=keys, quiet=True)


def test_a_translator_writes_words_of_a_lexicon(files: Path) -> None:
    model = STORED / "translate-luong.safetensors"
    code, out, said = call("run", model, "--lexicon", files / "words.txt", "--json", "--n-best", "2", given="3 5\n7\n")
    assert code == 0, said
    for line in out.splitlines():
        record = json.loads(line)
        assert len(record["n_best"]) == 2
        for one in record["n_best"]:
            assert set(one["translation"].split()) <= {"three", "seven"}
            assert " ".join(word["text"] for word in one["words"]) == one["translation"]
            for word in one["words"]:
                assert "".join(one["target_tokens"][word["start"] : word["end"]]) == word["text"]
                assert word["known"]
    answer = unrolled.load(model).predict("3 5", lexicon=["three", "seven"])
    assert str(answer) == json.loads(out.splitlines()[0])["translation"]
    several = unrolled.load(model).predict("3 5", lexicon=["three", "seven"], beam=8, n_best=8)
    texts = ["".join(one.target_tokens) for one in (several, *several.others)]
    assert texts == [str(one) for one in (several, *several.others)]  # no blank at an end, none doubled
    assert len(set(texts)) == 8
    assert unrolled.load(model).predict("3 5").words is None


def test_a_language_model_changes_what_is_written(files: Path) -> None:
    model = unrolled.load(STORED / "translate-luong.safetensors")
    words, lm = str(files / "all.txt"), NGram.load(files / "sevens.arpa")
    kept: dict[str, Any] = {"lexicon": words, "skip_unspellable": True}
    assert str(model.predict("3 7", **kept)) == "five three"
    assert str(model.predict("3 7", **kept, lm=lm, lm_weight=5.0)) == "seven"
    assert lm.score("seven") > max(lm.score(text) for text in ("three", "five three", "seven three"))
    assert str(model.predict("3 5", **kept, word_bonus=-200.0)) == ""
    assert len(str(model.predict("3", **kept, word_bonus=200.0)).split()) > 2
    opened = model.predict("3", lexicon=["five"], unknown_penalty=0.0)
    assert str(opened) == str(model.predict("3"))  # every word is free
    assert [(word.text, word.known) for word in opened.words] == [(word, False) for word in str(opened).split()]
    drawn = model.predict("3 5", **kept, temperature=1.0, seed=1, n_best=3)
    for one in (drawn, *drawn.others):
        assert not one.ended or set(str(one).split()) <= set(NUMBERS)


def test_eval_takes_the_options_of_a_search(files: Path) -> None:
    model, pairs = STORED / "translate-luong.safetensors", files / "pairs.tsv"
    code, out, said = call("eval", model, pairs, "--json")
    assert code == 0, said
    plain = json.loads(out)
    assert plain["search"] == "beam 5, gnmt 1"
    options = ("--beam", "3", "--lexicon", files / "words.txt", "--lm", files / "sevens.arpa", "--lm-weight", "0.5")
    code, out, said = call("eval", model, pairs, *options, "--margin", "50", "--per-node", "3")
    assert code == 0, said
    assert re.search(r"search +beam 3, gnmt 1, lexicon \+ lm 0.5\n", out)
    kept = unrolled.load(model).evaluate(pairs, beam=3, lexicon=files / "words.txt")
    assert kept["exact_match"] < plain["exact_match"]
    assert kept["search"] == "beam 3, gnmt 1, lexicon"


def test_phones_become_words(phones: Model, files: Path, tmp_path: Path) -> None:
    """Tokens spell pronunciations; words come out, and the language model decides among them."""
    phones.save(tmp_path / "model.safetensors")
    options = ("--lexicon", files / "said.txt", "--lm", files / "man.arpa", "--lm-weight", "20", "--max-tokens", "11")
    code, out, said = call(
        "run", tmp_path / "model.safetensors", *options, "--word-bonus", "30", "--beam", "60", "--json", "--text", "1 2"
    )
    assert code == 0, said
    record = json.loads(out)
    assert record["translation"].startswith("dog bites man")
    assert record["translation"] == " ".join(word["text"] for word in record["words"])
    for word in record["words"]:
        assert " ".join(record["target_tokens"][word["start"] : word["end"]]) == PHONES[word["text"]]
    spelt = {word: [said.split()] for word, said in PHONES.items()}
    for lexicon in (spelt, Lexicon(spelt, sorted({phone for text in PHONES.values() for phone in text.split()}))):
        answer = phones.predict(
            "1 2", lexicon=lexicon, lm=NGram.load(files / "man.arpa"), lm_weight=20.0, max_tokens=11
        )
        assert set(str(answer).split()) <= set(PHONES)


def test_references_of_words_and_of_phones_are_told_apart(phones: Model, files: Path, tmp_path: Path) -> None:
    """Word references are compared with words, phone references with the phones of the words; both against jiwer."""
    phones.save(tmp_path / "model.safetensors")
    model, sources = tmp_path / "model.safetensors", ["1 2", "2 3", "4 5"]
    truths = ["dog bites man", "dock buys men", "man bites dog"]
    said = [" ".join(PHONES[word] for word in truth.split()) for truth in truths]
    options: dict[str, Any] = {"lexicon": files / "said.txt", "beam": 3, "word_bonus": 3.0, "max_tokens": 9}
    answers = phones.predict(sources, **options)
    (tmp_path / "words.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in zip(sources, truths, strict=True)))
    (tmp_path / "phones.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in zip(sources, said, strict=True)))
    scores = phones.evaluate(tmp_path / "words.tsv", **options)
    assert scores["wer"] == pytest.approx(jiwer.wer(truths, [str(one) for one in answers]))
    assert "phone_error_rate" not in scores
    flags = ("--lexicon", files / "said.txt", "--beam", "3", "--word-bonus", "3", "--max-tokens", "9", "--json")
    for asked in ((), ("--reference-kind", "labels"), ("--share-ends",)):
        code, out, told = call("eval", model, tmp_path / "phones.tsv", *flags, *asked)
        assert code == 0, told
        spelt = [" ".join(one.target_tokens) for one in answers]
        assert json.loads(out)["phone_error_rate"] == pytest.approx(jiwer.wer(said, spelt))
    with pytest.raises(UserError, match=r"No part of the references is a label, such as .*: the first is 'dog'\. Give"):
        phones.evaluate(tmp_path / "words.tsv")
    with pytest.raises(UserError, match=r"reference_kind=words needs the words\. Give them with lexicon"):
        phones.evaluate(tmp_path / "words.tsv", reference_kind="words")
    letters = unrolled.load(STORED / "translate-luong.safetensors")
    with pytest.raises(UserError, match=r"reference_kind=labels tells words from labels, and this model's labels are"):
        letters.evaluate(files / "pairs.tsv", reference_kind="labels")


def test_words_that_share_their_ends_are_read_alike(phones: Model, files: Path) -> None:
    """The flag, and a lexicon from Python, make the automaton, which is smaller; every task answers the same."""
    said, side = str(files / "said.txt"), phones.assets.target.tokenizer
    spelt = {word: [text.split()] for word, text in PHONES.items()}
    labels = sorted({phone for text in PHONES.values() for phone in text.split()})
    given: list[dict[str, Any]] = [{"lexicon": said}, {"lexicon": said, "share_ends": True}]
    given += [{"lexicon": Lexicon(spelt, labels, share_ends=share)} for share in (False, True)]
    made = [with_dictionary(WritingOptions(**options), side).lexicon.lexicon for options in given]
    assert [one.share_ends for one in made] == [False, True, False, True]
    assert [one.graph.size for one in made] == [15, 9, 15, 9]  # counted by hand
    lm = NGram.load(files / "man.arpa")
    best = [phones.predict("1 2", **options, lm=lm, beam=8, n_best=4) for options in given]
    assert len({(one.text, one.score, *(other.text for other in one.others)) for one in best}) == 1
    reader, line = unrolled.load(STORED / "recognize-lines.safetensors"), STORED / "line.png"
    words, names = ["ab", "cab", "ba", "aba"], reader.assets.labels.names
    for lexicon in (words, Lexicon(words, names)):
        options = RecognitionOptions(lexicon=lexicon, share_ends=True)
        assert loaded(options, reader.assets.labels).lexicon.share_ends
        tree, shared = (reader.predict(line, lexicon=lexicon, beam=20, n_best=3, share_ends=on) for on in (False, True))
        assert tree == shared


@pytest.mark.parametrize("kind", ["lstm", "bpe"])
def test_a_language_model_writes_words_of_a_lexicon(kind: str, files: Path, tmp_path: Path) -> None:
    words = ["and", "make", "mend"] if kind == "lstm" else ["and", "makes", "tea"]
    (tmp_path / "words.txt").write_text("\n".join(words))
    options = ("--lexicon", tmp_path / "words.txt", "--seed", "3", "--max-tokens", "60", "--prompt", "1 and")
    code, out, said = call("run", STORED / f"generate-{kind}.safetensors", *options)
    assert code == 0, said
    *whole, last = re.split(r"[^a-z]+", out.strip("\n").removeprefix("1 and"))
    assert set(whole) <= {*words, ""}
    assert any(word.startswith(last) for word in words)
    code, again, _ = call("run", STORED / f"generate-{kind}.safetensors", *options, "--json")
    assert json.loads(again)["text"] == out.removesuffix("\n").removeprefix("1 and")


def test_a_search_in_a_language_model(tmp_path: Path) -> None:
    """The likeliest end of a line, of all that there are, within the lexicon and by both models."""
    text = "dog bites man\nman bites dog\ndog bites dog\n" * 40
    (tmp_path / "text.txt").write_text(text)
    keys = {"data.level": "word", "train.max_steps": 3, "train.batch_size": 4, "model.hidden_size": 8}
    model = unrolled.train("generate", train=tmp_path / "text.txt", out=tmp_path / "run", set=keys, quiet=True)
    lm, words = NGram.train(text.split("\n"), order=2), ["dog", "man"]
    prompt = "dog bites man\nman"
    found = model.predict(prompt, lexicon=words, lm=lm, lm_weight=2.0, beam=50, max_tokens=4)
    ends = [" ".join(some) for length in range(4) for some in itertools.product(words, repeat=length)]
    sentence = ["man " + end if end else "man" for end in ends]
    before = model.log_prob(["dog bites man"])[0]
    whole = [one - before for one in model.log_prob([f"dog bites man\n{one}" for one in sentence])]
    scores = [one + 2.0 * lm.score(text) for one, text in zip(whole, sentence, strict=True)]
    assert found.strip() == ends[scores.index(max(scores))]
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "words.txt").write_text("dog\nman\n")
    lm.save(tmp_path / "lm.arpa")
    options = ("--lexicon", tmp_path / "words.txt", "--lm", tmp_path / "lm.arpa", "--lm-weight", "2", "--beam", "50")
    code, out, said = call("run", tmp_path / "model.safetensors", *options, "--max-tokens", "4", "--prompt", prompt)
    assert (code, out) == (0, f"{prompt}{found}\n"), said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 3.0}, "margin is for a search, and without a beam text is drawn. Give one (--beam 5)."),
        ({"beam": 3, "seed": 1}, "seed is for drawing, and with a beam the likeliest text is searched for. Leave out"),
    ],
)
def test_options_of_generate_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        unrolled.load(STORED / "generate-lstm.safetensors").predict("3", **options)
    assert str(error.value).startswith(message)


def test_captions_of_a_lexicon(tmp_path: Path) -> None:
    """Tokens are words: a lexicon forbids the others."""
    (tmp_path / "words.txt").write_text("a\nbar\namid\n")
    model, picture = STORED / "caption.safetensors", STORED / "picture.png"
    code, out, said = call("run", model, picture, "--lexicon", tmp_path / "words.txt", "--json")
    assert code == 0, said
    record = json.loads(out)
    assert set(record["caption"].split()) <= {"a", "bar", "amid"}
    assert [word["text"] for word in record["words"]] == record["tokens"]


def test_words_that_no_token_can_write() -> None:
    """Letters are not enough for tokens that are whole words."""
    model = unrolled.load(STORED / "caption.safetensors")
    with pytest.raises(UserError) as error:
        model.predict(STORED / "picture.png", words=("bab", "moa"))
    assert str(error.value) == (
        "None of the 2 words can be written with the model's tokens. "
        "The model's tokens are whole words: give some that its training texts have."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lm": "lm.arpa"}, "A language model of words needs a list of them. Give one with lexicon (--lexicon)."),
        ({"lexicon": ["three"], "words": ("three",)}, "words and lexicon are both lists of words. Give one of them."),
        ({"lexicon": ["three"], "lm_weight": 1.0}, "lm_weight is for a language model, and there is none. Give one"),
        ({"word_bonus": 1.0}, "word_bonus is for words of a lexicon, and there is none. Give one (--lexicon)."),
        ({"per_node": 2}, "per_node is for words of a lexicon, and there is none. Give one (--lexicon)."),
        ({"skip_unspellable": True}, "skip_unspellable is for words of a lexicon, and there is none. Give one"),
        ({"share_ends": True}, "share_ends is for words of a lexicon, and there is none. Give one (--lexicon)."),
        ({"lexicon": ["three", "zoo"]}, "The word 'zoo' is spelt with 'z', which is no label or token of the model."),
        ({"lexicon": 3}, "lexicon=3 is no lexicon. Use the path of a file, words, or a Lexicon."),
        ({"lexicon": ["zoo"], "skip_unspellable": True}, "The lexicon has no words. Give at least one word that"),
        ({"margin": 2.0, "temperature": 1.0}, "margin is for a search, and with a temperature outputs are drawn."),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        unrolled.load(STORED / "translate-luong.safetensors").predict("3", **options)
    assert str(error.value).startswith(message)


def test_a_backward_model_keeps_to_no_lexicon(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("ab ba " * 100)
    keys = {"data.direction": "backward", "train.max_steps": 1, "train.batch_size": 4}
    model = unrolled.train("generate", train=tmp_path / "text.txt", out=tmp_path / "run", set=keys, quiet=True)
    with pytest.raises(UserError) as error:
        model.predict("a", lexicon=["ab"])
    assert str(error.value) == (
        "A backward model writes words from their end: it cannot keep to a list. "
        "Train with data.direction=forward, or leave out --lexicon."
    )
