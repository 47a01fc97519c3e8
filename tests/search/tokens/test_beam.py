"""Beam search against exhaustive search, itself in other batches, and its definition."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.search.toy import Fixed, Markov
from unrolled.errors import UserError
from unrolled.models import LanguageModelSettings, language_model
from unrolled.search import (
    Beam,
    Hypothesis,
    Limits,
    Ranking,
    Sampling,
    Scorer,
    Shared,
    TokenStep,
    beam_search,
    sample,
    score_targets,
)
from unrolled.search.scorers import Scorers

V, START, END = 5, 0, 4
RANKINGS = [Ranking("none"), Ranking("average"), Ranking("gnmt", 0.6), Ranking("gnmt", 1.0), Ranking("gnmt", 0.6, 0.5)]


class Attentive(Markov):
    """A Markov model that also pays attention: to position `last token` of a source with V positions, softly."""

    def __init__(self, table: Tensor, look: Tensor) -> None:
        super().__init__(table)
        self.look = look.softmax(-1)  # (V, S)

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        step = super().step(tokens, state)
        return TokenStep(step.log_probs, step.state, self.look[tokens])


def a_model() -> Attentive:
    return Attentive(1.5 * torch.randn(V, V, V), 2 * torch.randn(V, 3))


def log_prob(model: Attentive, tokens: tuple[int, ...], roll: int = 0) -> tuple[float, Tensor]:
    """By the tables alone, and the attention summed over steps."""
    total, covered = 0.0, torch.zeros(model.look.shape[-1], dtype=torch.float64)
    for before, last, token in zip((0, START, *tokens), (START, *tokens), tokens, strict=False):
        total += float(model.table[before, last].roll(roll)[token])
        covered += model.look[last].double()
    return total, covered


def score(ranking: Ranking, total: float, covered: Tensor, length: int) -> float:
    gnmt = float(((5 + length) / 6) ** ranking.alpha)
    divisor = {"none": 1.0, "average": float(length), "gnmt": gnmt}[ranking.length_penalty]
    return total / divisor + ranking.coverage * sum(math.log(min(1.0, float(c))) for c in covered)


def exhaustive(model: Attentive, ranking: Ranking, most: int, **wanted: Any) -> list[tuple[float, tuple[int, ...]]]:
    """Every output that ends within `most` tokens, the best first."""
    found = []
    inner = [token for token in range(V) if token != END]
    for length in range(1, most + 1):
        for tokens in itertools.product(inner, repeat=length - 1):
            if wanted.get("allowed", lambda _: True)(tokens):
                total, covered = log_prob(model, (*tokens, END))
                found.append((score(ranking, total, covered, length), tokens))
    return sorted(found, reverse=True)


def assert_same(hypotheses: list[Hypothesis], expected: list[tuple[float, tuple[int, ...]]]) -> None:
    assert [tuple(h.tokens) for h in hypotheses] == [tokens for _, tokens in expected]
    assert [h.score for h in hypotheses] == pytest.approx([s for s, _ in expected], abs=1e-5)


@pytest.mark.parametrize("ranking", RANKINGS, ids=str)
def test_a_wide_beam_is_exhaustive_search(ranking: Ranking) -> None:
    model = a_model()
    (found,) = beam_search(
        model, 1, Limits(end=END, max_tokens=4), start=START, beam=Beam(V**4, n_best=20, ranking=ranking), memory=None
    )
    assert_same(found.hypotheses, exhaustive(model, ranking, 4)[:20])


@pytest.mark.parametrize("ranking", RANKINGS, ids=str)
def test_a_beam_as_wide_as_the_vocabulary_is_exhaustive_over_two_tokens(ranking: Ranking) -> None:
    model = a_model()
    (found,) = beam_search(
        model, 1, Limits(end=END, max_tokens=2), start=START, beam=Beam(V, n_best=V, ranking=ranking)
    )
    assert_same(found.hypotheses, exhaustive(model, ranking, 2)[:V])


@pytest.mark.parametrize("ranking", RANKINGS, ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_rows_do_not_see_each_other(ranking: Ranking, size: int) -> None:
    model = a_model()
    memory = torch.arange(V)
    limits = [9, 1, 5, 7, 2]
    beam = Beam(size, n_best=min(2, size), ranking=ranking)
    together = beam_search(model, V, Limits(end=END, max_tokens=limits), start=START, beam=beam, memory=memory)
    for row in range(V):
        one = memory[row : row + 1]
        (alone,) = beam_search(model, 1, Limits(end=END, max_tokens=limits[row]), start=START, beam=beam, memory=one)
        assert [h.tokens for h in alone.hypotheses] == [h.tokens for h in together[row].hypotheses]
        assert [h.score for h in alone.hypotheses] == [h.score for h in together[row].hypotheses]


@pytest.mark.parametrize("ranking", RANKINGS, ids=str)
@pytest.mark.parametrize("trial", range(6))
def test_stopping_early_is_safe(ranking: Ranking, trial: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model()
    beam = Beam(4, n_best=1 + trial % 3, ranking=ranking)
    early = beam_search(model, V, Limits(end=END, max_tokens=14), start=START, beam=beam, memory=torch.arange(V))
    steps = len(model.batches)
    monkeypatch.setattr(Scorers, "bound", lambda self, states, totals, longest: torch.zeros_like(totals))
    late = beam_search(model, V, Limits(end=END, max_tokens=14), start=START, beam=beam, memory=torch.arange(V))
    assert early == late
    assert len(model.batches) - steps == 14
    if ranking.length_penalty == "none":
        assert sum(model.batches[:steps]) < sum(model.batches[steps:])


def test_a_beam_of_one_is_greedy_search() -> None:
    model = a_model()
    memory = torch.arange(V)
    found = beam_search(model, V, Limits(end=END, max_tokens=12), start=START, beam=Beam(1), memory=memory)
    greedy = sample(
        model, [[START]] * V, Limits(max_tokens=12, end=END), memory=memory, sampling=Sampling(temperature=0)
    )
    assert [f.best.tokens for f in found] == [g.tokens for g in greedy]
    assert [f.best.log_prob for f in found] == pytest.approx([g.log_prob for g in greedy], abs=1e-5)
    assert [f.best.ended for f in found] == [g.stopped_by == "end" for g in greedy]


@pytest.mark.parametrize("ranking", RANKINGS, ids=str)
def test_a_given_target_gets_the_score_of_the_search(ranking: Ranking) -> None:
    model = a_model()
    memory = torch.arange(3)
    found = beam_search(
        model, 3, Limits(end=END, max_tokens=8), start=START, beam=Beam(4, n_best=1, ranking=ranking), memory=memory
    )
    targets = [f.best.tokens for f in found]
    scored = score_targets(model, targets, Limits(end=END), start=START, memory=memory, ranking=ranking)
    for one, f in zip(scored, found, strict=True):
        assert (one.score, one.log_prob) == pytest.approx((f.best.score, f.best.log_prob), abs=1e-9)
        assert one.tokens == f.best.tokens


def test_no_ngram_twice_and_no_early_end() -> None:
    model = a_model()

    def allowed(tokens: tuple[int, ...]) -> bool:
        pairs = list(itertools.pairwise(tokens))
        return len(set(pairs)) == len(pairs) and len(tokens) >= 2 and 2 not in tokens

    beam = Beam(V**4, n_best=10)
    (found,) = beam_search(
        model, 1, Limits(end=END, min_tokens=2, no_repeat_ngram=2, max_tokens=5, forbidden=[2]), start=START, beam=beam
    )
    assert_same(found.hypotheses, exhaustive(model, beam.ranking, 5, allowed=allowed)[:10])


def test_outputs_begin_as_they_must_and_the_beginning_counts() -> None:
    model = a_model()
    prefixes = [[2, 1], [], [3]]
    beam = Beam(V**3, n_best=5)
    found = beam_search(
        model, 3, Limits(end=END, max_tokens=4, prefixes=prefixes, forbidden=[1]), start=START, beam=beam
    )
    for prefix, one in zip(prefixes, found, strict=True):
        held = len(prefix)

        def allowed(tokens: tuple[int, ...], prefix: list[int] = prefix, held: int = held) -> bool:
            return list(tokens[:held]) == prefix and 1 not in tokens[held:]

        expected = exhaustive(model, beam.ranking, 4, allowed=allowed)[:5]
        assert_same([h for h in one.hypotheses if h.ended][: len(expected)], expected)


def test_hypotheses_of_a_row_share_the_run_over_its_prefix() -> None:
    """Each row is one row of the model until a prefix ends; then the beam opens. It equals exhaustive search."""
    model, beam = a_model(), Beam(V**3, n_best=5)
    prefixes = [[2, 1, 3], [3, 2, 2, 1]]
    found = beam_search(model, 2, Limits(end=END, max_tokens=6, prefixes=prefixes), start=START, beam=beam)
    assert model.batches[:5] == [2, 2, 2, 2, 2 * V]  # the fourth step finds the first row's first free token
    for prefix, one in zip(prefixes, found, strict=True):

        def allowed(tokens: tuple[int, ...], prefix: list[int] = prefix) -> bool:
            return list(tokens[: len(prefix)]) == prefix

        expected = exhaustive(model, beam.ranking, 6, allowed=allowed)[:5]
        assert_same([h for h in one.hypotheses if h.ended][: len(expected)], expected)


def test_endless_outputs_are_cut_and_rank_last() -> None:
    endless = torch.zeros(2, 4)
    endless[:, 3] = -torch.inf
    found = beam_search(
        Rows(endless.log_softmax(-1)), 2, Limits(end=3, max_tokens=[3, 4]), start=0, beam=Beam(2, n_best=2)
    )
    assert [[len(h.tokens) for h in f.hypotheses] for f in found] == [[3, 3], [4, 4]]
    assert not any(h.ended for f in found for h in f.hypotheses)
    rarely = torch.tensor([[0.5, 0.3, 0.19, 0.01]]).log()
    (one,) = beam_search(Rows(rarely), 1, Limits(end=3, max_tokens=2), start=0, beam=Beam(2, n_best=2))
    assert [h.ended for h in one.hypotheses] == [True, True]


class Rows(Fixed):
    """The same distribution for every hypothesis of an input; the memory is the rows themselves."""

    def start(self, memory: Any) -> Any:
        return Shared(self.log_probs)

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        return TokenStep(state.value.repeat_interleave(len(tokens) // len(state.value), dim=0), state)


class OnlyEven(Scorer):
    """A mask with a state: tokens 1 and 2 in turn, an end after an even number of them."""

    def initial(self, rows: int) -> Tensor:
        return torch.zeros(rows, dtype=torch.int64)

    def scores(self, state: Tensor) -> Tensor:
        mask = torch.zeros(len(state), V, dtype=torch.bool)
        mask[torch.arange(len(state)), 1 + state % 2] = True
        mask[:, END] = state % 2 == 0
        return mask

    def advance(self, state: Tensor, tokens: Tensor) -> Tensor:
        return state + 1


def test_a_mask_of_ones_own() -> None:
    model = a_model()
    found = beam_search(
        model,
        2,
        Limits(end=END, max_tokens=7, scorers=[OnlyEven()]),
        start=START,
        beam=Beam(3, n_best=3),
        memory=torch.tensor([0, 2]),
    )
    for one in found:
        assert [h.tokens for h in one.hypotheses if h.ended]
        for h in one.hypotheses:
            assert h.tokens == [1, 2, 1, 2, 1, 2, 1][: len(h.tokens)]
            assert not h.ended or len(h.tokens) % 2 == 0


def test_attention_follows_its_hypothesis() -> None:
    model = a_model()
    found = beam_search(
        model,
        2,
        Limits(end=END, max_tokens=6),
        start=START,
        beam=Beam(4, n_best=4),
        memory=torch.tensor([0, 1]),
        attention=True,
    )
    for one in found:
        for h in one.hypotheses:
            read = [START, *h.tokens] if h.ended else [START, *h.tokens[:-1]]
            assert torch.equal(h.attention, model.look[read])  # type: ignore[arg-type]


def test_the_tree_holds_every_path() -> None:
    model = a_model()
    found = beam_search(
        model,
        2,
        Limits(end=END, max_tokens=6),
        start=START,
        beam=Beam(3, n_best=3),
        memory=torch.tensor([0, 1]),
        tree=True,
    )
    for row, one in enumerate(found):
        assert one.tree is not None
        paths = {tuple(one.tree.path(i)): node for i, node in enumerate(one.tree.nodes)}
        for h in one.hypotheses:
            node = paths[(*h.tokens, END) if h.ended else tuple(h.tokens)]
            assert node.fate == ("ended" if h.ended else "cut")
            assert node.log_prob == h.log_prob
        for path, node in paths.items():
            assert node.log_prob == pytest.approx(log_prob(model, path, roll=row)[0], abs=1e-5)


def test_enough_stops_sooner() -> None:
    model = a_model()
    ranking = Ranking("average")
    for stop in ("safe", "enough"):
        beam_search(model, 1, Limits(end=END, max_tokens=50), start=START, beam=Beam(3, ranking=ranking, stop=stop))
        model.batches.append(-1)
    cut = model.batches.index(-1)
    assert len(model.batches) - cut - 2 <= cut


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Beam(0), "size=0 is not a whole number from 1 up. Use 1."),
        (lambda: Beam(2, n_best=3), "n_best=3 is more than the beam's size=2. Use a beam of 3."),
        (lambda: Beam(stop="soon"), "Unknown stop 'soon'. Choices: enough, safe."),  # type: ignore[arg-type]
        (lambda: Ranking("mean"), "Unknown length penalty 'mean'. Choices: average, gnmt, none."),  # type: ignore[arg-type]
        (lambda: Ranking(coverage=-1), "coverage=-1 is not a number from 0 to 100. Use 0 for none; 0.2 is usual."),
    ],
)
def test_settings_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0 is not a whole number from 1 up. Use a length in tokens."),
        ({"max_tokens": None}, "max_tokens=None does not give each of 2 rows a whole number from 1 up. Use one number"),
        ({"end": None}, "A beam search needs an end token. Give one: Limits(end=...)."),
        ({"scorers": [3]}, "3 is not a Scorer. Derive its class from unrolled.search.Scorer."),
        ({"max_tokens": [3]}, "max_tokens=[3] does not give each of 2 rows a whole number from 1 up."),
        ({"prefixes": [[1]]}, "1 prefixes were given for 2 rows. Give one for each; [] is none."),
        ({"prefixes": [[1], [9]]}, "prefixes[1] holds token 9, but the model knows 5 tokens. Use tokens from 0 to 4."),
        ({"forbidden": range(V)}, "No token is left to write for token 1 of row 0: all have probability 0 or are not "),
        ({"beam": Beam(2, ranking=Ranking(coverage=0.1))}, "This model has no attention, so there is no coverage."),
        ({"attention": True}, "This model has no attention, so there is no attention."),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    search = {name: options.pop(name) for name in ("beam", "attention") if name in options}
    limits = {"max_tokens": 3, "end": END, **options}
    with pytest.raises(UserError) as error:
        beam_search(Markov(torch.zeros(V, V)), 2, Limits(**limits), start=START, **search)
    assert str(error.value).startswith(message)


def test_weights_that_are_not_finite() -> None:
    with pytest.raises(UserError, match=r"log-probabilities for token 1 of row 0 contain NaN"):
        beam_search(Rows(torch.full((1, V), torch.nan)), 1, Limits(end=END, max_tokens=3), start=START)


def test_targets_the_model_does_not_know() -> None:
    with pytest.raises(UserError, match=r"targets\[1\] holds token 7, but the model knows 5 tokens"):
        score_targets(Markov(torch.zeros(V, V)), [[1], [7]], Limits(end=END), start=START)


@pytest.mark.parametrize("kind", ["recurrent", "feedforward"])
def test_language_models_are_searched_the_same_way(kind: str) -> None:
    """A wide beam finds the likeliest of all texts of a network whose state is made in its first step."""
    settings = LanguageModelSettings(kind=kind, hidden_size=6, embedding_size=4, context=3)
    network = language_model(settings, V, START).eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight)
    (found,) = beam_search(network, 1, Limits(end=END, max_tokens=4), start=START, beam=Beam(V**4, n_best=5))
    inner = [token for token in range(V) if token != END]
    targets = [list(t) for length in range(4) for t in itertools.product(inner, repeat=length)]
    best = sorted(score_targets(network, targets, Limits(end=END), start=START), key=lambda h: -h.score)[:5]
    assert [h.tokens for h in found.hypotheses] == [h.tokens for h in best]
    assert [h.score for h in found.hypotheses] == pytest.approx([h.score for h in best], abs=1e-5)
