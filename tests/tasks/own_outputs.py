"""Networks that write, each with one step written out in torch, for tests of training on own outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from tests.models import test_captioner, test_translator
from unrolled.config import apply
from unrolled.data import Batch
from unrolled.models import LanguageModelSettings, language_model
from unrolled.models.captioner import CaptionerSettings, captioner
from unrolled.models.translator import translator
from unrolled.models.translator_settings import TranslatorSettings
from unrolled.nn.positions import sinusoidal
from unrolled.tasks.caption.config import CaptionConfig
from unrolled.tasks.caption.task import Caption
from unrolled.tasks.contract import Task
from unrolled.tasks.generate.config import GenerateConfig
from unrolled.tasks.generate.task import Generate
from unrolled.tasks.translate.config import TranslateConfig
from unrolled.tasks.translate.task import Translate

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""tokens (B,) and a state → scores (B, V) and the next state."""


class Family(NamedTuple):
    """A network with a batch, and the same model as a step written out."""

    task: Task
    config: type[Any]
    network: Any
    batch: Batch
    inputs: Tensor  # (B, T), tokens that are read
    real: Tensor  # (B, T)
    start: Callable[[], Any]  # the state before the first step, with gradients
    step: Step
    entry: Any = None  # the state that the batch begins with


def on_engine(network: nn.Module, engine: str) -> None:
    """All layers of a network on one engine."""
    for module in network.modules():
        if hasattr(module, "backend"):
            setattr(module, "backend", engine)  # noqa: B010, mypy knows no attribute of a module


def _lengths(values: list[int], steps: int) -> Tensor:
    return torch.arange(steps) < torch.tensor(values)[:, None]


def plain_translator() -> Family:
    """LSTM to LSTM of the same size: the state is copied."""
    changes = {"decoder.attention": "none", "encoder.bidirectional": False, "decoder.dropout": 0.0}
    return _translated({**changes, "encoder.dropout": 0.0}, _start_plain, _plain_step)


def attending_translator() -> Family:
    changes = {"decoder.cell": "gru", "decoder.dropout": 0.0, "encoder.dropout": 0.0}
    return _translated(changes, _start_luong, _luong_step)


def transformer_translator() -> Family:
    changes = {**test_translator.TINY, "kind": "transformer", "decoder.dropout": 0.0, "encoder.dropout": 0.0}
    return _translated(changes, _start_transformer, _transformer_step)


def _translated(changes: dict[str, Any], start: Any, step: Any) -> Family:
    settings = apply(TranslatorSettings(), {**test_translator.SMALL, **changes})
    network: Any = translator(settings, test_translator.Sizes(), test_translator.END).double().train()
    batch = test_translator.a_batch([4, 1, 7], [6, 2, 5])
    return _written(Translate(), TranslateConfig, network, batch, start, step)


def _written(task: Task, config: type[Any], network: Any, batch: Batch, start: Any, step: Any) -> Family:
    inputs, lengths = batch.more["target_inputs"], batch.more["target_lengths"].tolist()
    real = _lengths(lengths, inputs.shape[1])
    return Family(
        task,
        config,
        network,
        batch,
        inputs,
        real,
        lambda: start(network, network.encode(batch)),
        lambda tokens, state: step(network, tokens, state),
    )


def _start_plain(network: Any, encoded: Any) -> Any:
    return tuple(part[:, 0] for part in network.decoder.bridge(encoded.state))


def _plain_step(network: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    layer, x = network.decoder.layer, network.embedding.weight[tokens]
    h, c = torch.lstm_cell(x, state, layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)
    return _read_out(network, h), (h, c)


def _read_out(network: Any, features: Tensor) -> Tensor:
    if network.readout is not None:
        features = torch.tanh(F.linear(features, network.readout.weight, network.readout.bias))
    return F.linear(features, network.scores.weight, network.scores.bias)


def _start_luong(network: Any, encoded: Any) -> Any:
    h = network.decoder.bridge(encoded.state)[0][:, 0]
    return h, h.new_zeros(len(h), network.decoder.attend.output_size), encoded.memory, encoded.mask


def _luong_step(network: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    h, fed, memory, mask = state
    attend, x = network.decoder.attend, network.embedding.weight[tokens]
    rnn = attend.rnn
    weight = torch.cat([rnn.weight_ih_l0, attend.weight_feed], dim=1)
    h = torch.gru_cell(torch.cat([x, fed], 1), h, weight, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0)
    logits = torch.einsum("bh,hm,bsm->bs", h, attend.attention.key.weight, memory)
    weights = logits.masked_fill(~mask, -torch.inf).softmax(-1)
    context = torch.einsum("bs,bsm->bm", weights, memory)
    fed = torch.tanh(F.linear(torch.cat([context, h], 1), attend.mix.weight, attend.mix.bias))
    return _read_out(network, fed), (h, fed, memory, mask)


def _start_transformer(network: Any, encoded: Any) -> Any:
    return [], encoded.memory, encoded.mask


def _transformer_step(network: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    """All tokens so far through torch's decoder, without a cache."""
    seen, memory, mask = state
    seen = [*seen, tokens]
    ids = torch.stack(seen, dim=1)
    width = network.embedding.embedding_dim
    x = network.embedding.weight[ids] * width**0.5 + sinusoidal(torch.arange(len(seen)), width).double()
    with torch.random.fork_rng():  # the initial weights are not used
        one = nn.TransformerDecoderLayer(width, 4, 9, 0.0, batch_first=True, norm_first=True)
        torchs = nn.TransformerDecoder(one, 2, nn.LayerNorm(width)).double()
    causal = torch.triu(torch.ones(len(seen), len(seen), dtype=torch.bool), 1)
    weights = dict(network.decoder.named_parameters())
    output = functional_call(torchs, weights, (x, memory, causal), {"memory_key_padding_mask": ~mask})
    return F.linear(output[:, -1], network.scores.weight, network.scores.bias), (seen, memory, mask)


def plain_captioner() -> Family:
    return _captioned(test_captioner.VECTOR, {"encoder.hidden_size": 5}, _start_plain, _plain_step)


def soft_captioner() -> Family:
    return _captioned(test_captioner.REGIONS, {"decoder.attention": "soft"}, _start_soft, _soft_step)


def _captioned(shape: Any, changes: dict[str, Any], start: Any, step: Any) -> Family:
    settings = apply(CaptionerSettings(), {**test_captioner.SMALL, **changes})
    network: Any = captioner(settings, shape, test_captioner.TOKENS).double().train()
    batch = test_captioner.a_batch(shape, [6, 2, 5])
    return _written(Caption(), CaptionConfig, network, batch, start, step)


def _start_soft(network: Any, encoded: Any) -> Any:
    states = network.decoder.bridge(encoded.state)
    return tuple(part[:, 0] for part in states), encoded.memory


def _soft_step(network: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Xu et al. 2015: additive attention before the step, through a gate."""
    (h, c), memory = state
    attend, x = network.decoder.attend, network.embedding.weight[tokens]
    look, rnn = attend.attention, attend.rnn
    summed = torch.tanh((h @ look.query.weight.T)[:, None] + look.key(memory)) @ look.vector
    context = torch.einsum("bs,bsm->bm", summed.softmax(-1), memory)
    context = torch.sigmoid(h @ attend.gate.weight.T + attend.gate.bias) * context
    weight = torch.cat([rnn.weight_ih_l0, attend.weight_feed], dim=1)
    read = torch.cat([x, context], dim=1)
    h, c = torch.lstm_cell(read, (h, c), weight, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0)
    return _read_out(network, torch.cat([h, context, x], dim=1)), ((h, c), memory)


TOKENS = 9


def _text(entry: Any) -> Batch:
    """Three ragged windows; the second begins a text, the others continue one where there is a state."""
    ids = torch.randint(TOKENS, (3, 8))
    resets = torch.tensor([False, True, False]) if entry is not None else None
    return Batch(ids[:, :-1], ids[:, 1:], lengths=torch.tensor([7, 3, 5]), resets=resets)


def _language(settings: dict[str, Any], entry: Any, start: Any, step: Any) -> Family:
    made = LanguageModelSettings(**{"hidden_size": 6, "embedding_size": 4, "dropout": 0.0, **settings})
    network: Any = language_model(made, TOKENS, 0).double().train()
    batch, real = _text(entry), _lengths([7, 3, 5], 7)
    return Family(
        Generate(),
        GenerateConfig,
        network,
        batch,
        batch.inputs,
        real,
        lambda: start(network, batch, entry),
        lambda tokens, state: step(network, tokens, state),
        entry,
    )


def recurrent_language() -> Family:
    entry = (torch.randn(3, 1, 6).double(), torch.randn(3, 1, 6).double())

    def start(network: Any, batch: Batch, entry: Any) -> Any:
        return tuple(torch.where(batch.resets[:, None], 0.0, part[:, 0]) for part in entry)

    def step(network: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        layer, x = network.layer, network.embedding.weight[tokens]
        h, c = torch.lstm_cell(x, state, layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)
        return F.linear(h, network.scores.weight, network.scores.bias), (h, c)

    return _language({}, entry, start, step)


def feedforward_language() -> Family:
    entry = (torch.randint(TOKENS, (3, 2)),)

    def start(network: Any, batch: Batch, entry: Any) -> Any:
        return torch.where(batch.resets[:, None], 0, entry[0])

    def step(network: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        seen = torch.cat([state, tokens[:, None]], dim=1)  # (B, 3)
        hidden = torch.tanh(network.hidden(network.embedding.weight[seen].flatten(1)))
        return network.scores(hidden), seen[:, 1:]

    return _language({"kind": "feedforward", "context": 3}, entry, start, step)


def transformer_language() -> Family:
    def step(network: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        seen = [*state, tokens]
        x = network.embedding.weight[torch.stack(seen, 1)] * 6**0.5 + sinusoidal(torch.arange(len(seen)), 6).double()
        with torch.random.fork_rng():
            one = nn.TransformerEncoderLayer(6, 2, 24, 0.0, "gelu", batch_first=True, norm_first=True)
            torchs = nn.TransformerEncoder(one, 2, nn.LayerNorm(6), enable_nested_tensor=False).double()
        causal = torch.triu(torch.ones(len(seen), len(seen), dtype=torch.bool), 1)
        output = functional_call(torchs, dict(network.encoder.named_parameters()), (x, causal))
        return F.linear(output[:, -1], network.scores.weight, network.scores.bias), seen

    settings = {"kind": "transformer", "heads": 2, "blocks": 2, "context": 7}
    return _language(settings, None, lambda network, batch, entry: [], step)


FAMILIES: dict[str, Callable[[], Family]] = {
    "translate, fixed vector": plain_translator,
    "translate, attention": attending_translator,
    "translate, transformer": transformer_translator,
    "caption, one vector": plain_captioner,
    "caption, soft attention": soft_captioner,
    "generate, recurrent": recurrent_language,
    "generate, feed-forward": feedforward_language,
    "generate, transformer": transformer_language,
}
