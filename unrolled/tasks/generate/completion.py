"""Scores of a search in a language model: the ends of a text's lines, written from their beginnings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from unrolled.errors import UserError
from unrolled.metrics.phones import error_rate_name
from unrolled.metrics.recognition import exact_match, recognition_scores, symbol_error_rate
from unrolled.tasks.generate.predict import GenerationOptions, direction_of
from unrolled.tasks.generate.search import searched
from unrolled.tasks.shared.rescoring import USUAL_CANDIDATES
from unrolled.tasks.shared.writing import USUAL_BEAM
from unrolled.text import Tokenizer

if TYPE_CHECKING:
    from unrolled.model import Model


class Cut(NamedTuple):
    """A line in two: the words that are given, and the others."""

    given: str
    rest: str


def score_completions(
    model: Model, text: str, given: int | None = None, beam: int | None = None, **options: Any
) -> dict[str, Any]:
    """Completes every line in each way that the options ask for; the scores above the table are those of the last.

    `given` words of each line are given, or half of them; of a backward model the last ones. Lines that leave nothing
    to write are left out.
    """
    usual = USUAL_BEAM if options.get("rescore") is None else max(USUAL_CANDIDATES, options.get("candidates") or 0)
    lines = [line for line in text.splitlines() if line.strip()]
    longest = max((len(model.assets.ids(line)) for line in lines), default=1)
    chosen = GenerationOptions(**{"beam": beam or usual, "max_tokens": 2 * longest, **options})
    found = [cut_line(line, given, backward=direction_of(model) == "backward") for line in lines]
    cuts = [one for one in found if one is not None]
    if not cuts:
        least = "two words" if given is None else f"{given + 1} words"
        raise UserError(f"No line has {least}, so there is nothing to complete.", "Use a text with longer lines.")
    table = {name: _scores(model, cuts, one) for name, one in ways(chosen).items()}
    search = list(table)[-1]
    return {
        **table[search],
        "search": search,
        "lines": len(cuts),
        "lines_left_out": len(lines) - len(cuts),
        "searches": table,
    }


def cut_line(line: str, given: int | None, *, backward: bool) -> Cut | None:
    """A line after its first words, or before its last ones; None: no word is left to write.

    >>> cut_line("dog bites man", None, backward=False), cut_line("dog bites man", 2, backward=True)
    (Cut(given='dog', rest='bites man'), Cut(given='bites man', rest='dog'))
    """
    words = list(re.finditer(r"\S+", line))
    count = len(words) // 2 if given is None else given
    if not 0 < count < len(words):
        return None
    if backward:
        start = words[-count].start()
        return Cut(line[start:].rstrip(), line[:start].strip())
    end = words[count - 1].end()
    return Cut(line[:end], line[end:].strip())


def ways(options: GenerationOptions) -> dict[str, GenerationOptions]:
    """From the plainest search to the one that was asked for; n-best lists have no part in scores."""
    options = replace(options, n_best=1)
    none: Any = {"rescore": None, "rescore_weight": None, "rescore_bonus": None, "candidates": None}
    plain = GenerationOptions(beam=1, max_tokens=options.max_tokens, stop=options.stop, graph=options.graph)
    beam = f"beam {options.beam}"
    found = {"greedy": plain}
    if options.beam != 1:
        found[beam] = replace(plain, beam=options.beam, margin=options.margin, scorers=options.scorers)
    listed = replace(options, **none)
    last = list(found)[-1]
    if options.words is not None:
        last = "words"
        found[last] = listed
    if options.lexicon is not None:
        last = "lexicon" if options.unknown_penalty is None else "open lexicon"
        found[last] = replace(listed, lm=None, lm_weight=None)
        if options.lm is not None:
            last = f"{last} + lm"
            found[last] = listed
    if options.rescore is not None:
        found[f"{last}, rescored"] = options
    return found


def _scores(model: Model, cuts: Sequence[Cut], options: GenerationOptions) -> dict[str, float]:
    """Error rates of the ends, as the model's tokens spell them."""
    tokenizer: Tokenizer = model.assets
    prompts = list(dict.fromkeys(cut.given for cut in cuts))  # lines may begin alike
    answers = dict(zip(prompts, searched(model, prompts, options), strict=True))
    outputs = [" ".join(answers[cut.given].spelt.split()) for cut in cuts]
    truths = [cut.rest.lower() if tokenizer.lowercase else cut.rest for cut in cuts]
    references = [" ".join(truth.split()) for truth in truths]
    if tokenizer.level != "symbols":
        return asdict(recognition_scores(outputs, references))
    names = tokenizer.vocabulary.tokens[len(tokenizer.vocabulary.specials) :]
    rate = symbol_error_rate(outputs, references)
    return {
        error_rate_name([name for name in names if name.strip()]): rate,
        "exact_match": exact_match(outputs, references),
    }
