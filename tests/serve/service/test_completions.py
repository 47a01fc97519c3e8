"""`/v1/completions` and `/v1/models` through the unmodified client of OpenAI."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.serve.service.conftest import Clients
from tests.serve.service.serving import served
from unrolled.model import Model
from unrolled.serve.service.completion_bodies import CompletionRequest

openai = pytest.importorskip("openai", reason="the client of OpenAI is missing: pip install openai")

Models = Callable[[str], Model]
GENERATE, TRANSLATE, TAG = "generate-lstm", "translate-luong", "tag-crf"
KEY = "0123456789abcdef0123"


@contextmanager
def client(client_of: Clients, *kinds: str, key: str = "none", **settings: Any) -> Iterator[Any]:
    with client_of(*kinds, **settings) as http:
        yield openai.OpenAI(base_url="http://127.0.0.1/v1", api_key=key, http_client=http, max_retries=0)


def test_models(client_of: Clients) -> None:
    with client(client_of, GENERATE, TAG) as made:
        assert [(one.id, one.object, one.owned_by) for one in made.models.list()] == [
            (GENERATE, "model", "unrolled"),
            (TAG, "model", "unrolled"),
        ]
        one = made.models.retrieve(TAG)
        assert one.created > 0
        assert one.task == "tag"
        with pytest.raises(openai.NotFoundError, match=r"Unknown model 'none'. Choices: generate-lstm, tag-crf."):
            made.models.retrieve("none")


def test_texts_are_those_of_predict(client_of: Clients, model_of: Models) -> None:
    model, prompts = model_of(GENERATE), ["3 and", "7 and 4"]
    asked: dict[str, Any] = {"max_tokens": 20, "temperature": 0.9, "top_p": 0.8, "seed": 5}
    with client(client_of, GENERATE) as made:
        found = made.completions.create(model=GENERATE, prompt=prompts, n=2, **asked, extra_body={"top_k": 9})
        plain = made.completions.create(model=GENERATE, prompt="3 and", seed=1)
        echoed = made.completions.create(model=GENERATE, prompt="3 and", echo=True, user="ana", **asked)
    expected = model.predict([prompts[0]] * 2 + [prompts[1]] * 2, top_k=9, **asked)
    assert [(one.index, one.text) for one in found.choices] == list(enumerate(expected))
    assert {one.finish_reason for one in found.choices} == {"length"}
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (5 + 7, 4 * 20)
    assert found.usage.total_tokens == 92
    assert plain.choices[0].text == model.predict("3 and", seed=1)  # our own defaults
    assert echoed.choices[0].text == "3 and" + model.predict("3 and", **asked)


@pytest.mark.parametrize("kind", [GENERATE, TRANSLATE])
def test_a_stream_joined_is_the_text(kind: str, client_of: Clients) -> None:
    asked: dict[str, Any] = {"model": kind, "prompt": ["3 5 7", "5 8"], "temperature": 1.0, "seed": 3, "n": 2}
    asked |= {"max_tokens": 12, "stop": ["e", " "], "logprobs": 2}
    with client(client_of, kind) as made:
        whole = made.completions.create(**asked)
        pieces = list(made.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        untold = list(made.completions.create(**asked, stream=True))
    *parts, last = pieces
    assert last.choices == []
    assert last.usage == whole.usage
    assert len({one.id for one in parts}) == 1
    assert all(one.usage is None for one in untold)
    assert len(untold) == len(parts)
    for expected in whole.choices:
        own = [part.choices[0] for part in parts if part.choices[0].index == expected.index]
        assert "".join(one.text for one in own) == expected.text
        assert [one.finish_reason for one in own] == [None] * (len(own) - 1) + [expected.finish_reason]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            joined = [value for one in own for value in getattr(one.logprobs, name)]
            assert joined == getattr(expected.logprobs, name)


def test_stop(client_of: Clients, model_of: Models) -> None:
    model = model_of(GENERATE)
    text = model.predict("3 and", max_tokens=40, seed=2)
    stop = text[10:12]
    with client(client_of, GENERATE) as made:
        found = made.completions.create(model=GENERATE, prompt="3 and", max_tokens=40, seed=2, stop=stop, logprobs=0)
    (one,) = found.choices
    assert one.text == model.predict("3 and", max_tokens=40, seed=2, stop=(stop,)) == text[: text.index(stop)]
    assert one.finish_reason == "stop"
    assert "".join(one.logprobs.tokens) == one.text
    assert found.usage.completion_tokens == len(one.text) + len(stop)  # of characters


def test_log_probabilities_of_generate(client_of: Clients, model_of: Models) -> None:
    """They sum to what the model's own scorer gives, and are those of the plain distribution."""
    model = model_of(GENERATE)
    asked: dict[str, Any] = {"model": GENERATE, "prompt": "3 and", "seed": 2, "max_tokens": 7}
    with client(client_of, GENERATE) as made:
        written = made.completions.create(**asked, logprobs=3, echo=True).choices[0]
        read = made.completions.create(model=GENERATE, prompt=written.text, max_tokens=0, logprobs=3, echo=True)
        newline = made.completions.create(
            model=GENERATE, prompt=written.text + "\n", max_tokens=0, logprobs=0, echo=True
        )
    scores = written.logprobs
    assert "".join(scores.tokens) == written.text
    assert scores.text_offset == list(range(len(written.text)))
    for token, own, top in zip(scores.tokens, scores.token_logprobs, scores.top_logprobs, strict=True):
        assert top[token] == own
        assert sorted(top.values(), reverse=True)[0] >= own
        assert len(top) in (3, 4)
        assert sum(map(math.exp, top.values())) < 1 + 1e-6
    again = read.choices[0]
    assert again.text == written.text
    assert again.finish_reason == "length"
    assert read.usage.completion_tokens == 0
    assert again.logprobs.token_logprobs == pytest.approx(scores.token_logprobs, abs=1e-5)
    (expected,) = model.log_prob([written.text])  # with the new line that ends it
    assert sum(newline.choices[0].logprobs.token_logprobs) == pytest.approx(expected, abs=1e-4)


def test_translations(client_of: Clients, model_of: Models) -> None:
    model, sources = model_of(TRANSLATE), ["3 5 7", "8"]
    with client(client_of, TRANSLATE) as made:
        searched = made.completions.create(model=TRANSLATE, prompt=sources, n=3, seed=1, logprobs=2)
        drawn = made.completions.create(model=TRANSLATE, prompt=sources, n=2, temperature=1.0, seed=4, max_tokens=6)
        wide = made.completions.create(model=TRANSLATE, prompt="3 5 7", n=7)
    best = [one for answer in model.predict(sources, n_best=3) for one in (answer, *answer.others)]
    assert [one.text for one in searched.choices] == [one.text for one in best]
    for one, answer in zip(searched.choices, best, strict=True):
        assert "".join(one.logprobs.tokens) == one.text
        assert one.finish_reason == ("stop" if answer.ended else "length")
        if not answer.ended:  # else the end token counts too
            assert sum(one.logprobs.token_logprobs) == pytest.approx(answer.log_prob, abs=1e-4)
        for token, offset in zip(one.logprobs.tokens, one.logprobs.text_offset, strict=True):
            assert one.text[offset:].startswith(token)
    texts = model.predict(sources, n_best=2, temperature=1.0, seed=4, max_tokens=6)
    assert [one.text for one in drawn.choices] == [one.text for answer in texts for one in (answer, *answer.others)]
    answer = model.predict("3 5 7", n_best=7, beam=7)
    assert [one.text for one in wide.choices] == [one.text for one in (answer, *answer.others)]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"best_of": 3, "n": 2}, "best_of is not supported beyond n. Ask for more texts with n."),
    ({"presence_penalty": 0.5}, "presence_penalty is not supported. Leave it out."),
    ({"logit_bias": {"1": -100}}, "logit_bias is not supported. Leave it out."),
    ({"suffix": "end"}, "suffix is not supported. Leave it out."),
    ({"max_tokens": 0}, "max_tokens is 0, and there is nothing to write. Give 1 or more, or echo=true."),
    ({"stream_options": {"include_usage": True}}, "stream_options is for stream=true."),
    (
        {"extra_body": {"tools": []}},
        f"Unknown key 'tools'. Choices: {', '.join(sorted(CompletionRequest.model_fields))}.",
    ),
    ({"n": 17}, "n: Input should be less than or equal to 16."),
    ({"model": TRANSLATE, "echo": True}, "echo is not for translations: they do not continue their prompt."),
    (
        {"model": TRANSLATE, "top_p": 0.5},
        "top_p is for drawing, and without a temperature outputs are searched for. "
        "Give a temperature too (--temperature 1), or leave it out.",
    ),
    ({"model": TAG}, "tag-crf is a model of tag, which writes no texts."),
]


def test_what_cannot_be_honoured(client_of: Clients) -> None:
    with client(client_of, GENERATE, TRANSLATE, TAG) as made:
        for given, message in REFUSED:
            for stream in (None, True) if "stream_options" not in given else (None,):
                with pytest.raises(openai.BadRequestError) as caught:
                    made.completions.create(**{"model": GENERATE, "prompt": "3", "stream": stream, **given})
                assert caught.value.body["message"] == message


def test_errors_are_those_of_the_client(client_of: Clients, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(f"ana {KEY}\n")
    with client(client_of, GENERATE, key=KEY, api_key_file=keys, rate=0.001, burst=3) as made:
        for stream in (False, True):
            with pytest.raises(openai.NotFoundError) as missing:
                made.completions.create(model="none", prompt="3", stream=stream)
            assert missing.value.code == "model_not_found"
        made.models.list()
        with pytest.raises(openai.RateLimitError, match=r"more than 0\.001 requests a second"):
            made.models.list()
    with (
        client(client_of, GENERATE, key="wrong", api_key_file=keys) as made,
        pytest.raises(openai.AuthenticationError, match="The API key is not known"),
    ):
        made.completions.create(model=GENERATE, prompt="3")
    with client(client_of, GENERATE, max_writing=1, max_inputs=4) as made:
        with made.completions.create(model=GENERATE, prompt="3", max_tokens=4000, stream=True) as first:
            next(iter(first))
        with pytest.raises(openai.APIStatusError) as many:
            made.completions.create(model=GENERATE, prompt=["3"] * 3, n=2)
        assert many.value.status_code == 413
        assert many.value.body["message"] == "6 texts are asked for; the limit is 4. Send several requests."


def test_an_error_inside_a_stream_reaches_the_client(client_of: Clients) -> None:
    with client(client_of, GENERATE) as made:
        made.completions.create(model=GENERATE, prompt="3", max_tokens=1)  # the model is loaded, which takes a while
        pieces = made.completions.create(
            model=GENERATE, prompt="3", max_tokens=4096, n=16, stream=True, extra_body={"timeout": 0.3}
        )
        with pytest.raises(openai.APIError, match=r"The answer was not there after 0\.3 seconds"):
            for _ in pieces:
                pass


def test_a_client_on_the_loopback_that_leaves(run_of: Callable[[str], Path], model_of: Models) -> None:
    """The pieces come while the text is written; when the client leaves, the writing ends."""
    with served({"book": run_of(GENERATE)}) as address:
        made = openai.OpenAI(base_url=f"{address}v1", api_key="none", max_retries=0)
        asked: dict[str, Any] = {"model": "book", "prompt": "3 and", "seed": 1}
        text = "".join(one.choices[0].text for one in made.completions.create(**asked, stream=True))
        assert text == model_of(GENERATE).predict("3 and", seed=1)
        with made.completions.create(**asked, max_tokens=4096, n=16, stream=True) as pieces:
            assert next(iter(pieces)).choices[0].finish_reason is None
            assert "unrolled_writing 1" in urlopen(f"{address}metrics").read().decode()
        for _ in range(200):
            if "unrolled_writing 0" in urlopen(f"{address}metrics").read().decode():
                return
            time.sleep(0.05)
    raise AssertionError("the text is still being written")
