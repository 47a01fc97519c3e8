"""The networks that one would write in plain torch, and their update: the peers of whole_update_gpu.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

Step = Callable[[], object]


class LanguageModel(nn.Module):
    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.layer = nn.LSTM(embedding, hidden, layers, dropout=dropout if layers > 1 else 0.0, batch_first=True)
        self.dropout, self.scores = nn.Dropout(dropout), nn.Linear(hidden, vocabulary)

    def forward(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        output, state = self.layer(self.dropout(self.embedding(ids)), state)
        return self.scores(self.dropout(output)), state


class TransformerLM(nn.Module):
    def __init__(self, vocabulary: int, width: int, blocks: int, heads: int, steps: int, dropout: float) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(steps, width)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, blocks, nn.LayerNorm(width), enable_nested_tensor=False)
        self.scores = nn.Linear(width, vocabulary)
        self.mask: Tensor
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(steps))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positions.weight
        scores: Tensor = self.scores(self.blocks(x, mask=self.mask, is_causal=True))
        return scores


class AttentionTranslator(nn.Module):
    """Bahdanau's: a bidirectional encoder, additive attention, and a decoder that reads its last context."""

    def __init__(self, vocabulary: int, embedding: int, encoder: int, decoder: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, embedding), nn.Embedding(vocabulary, embedding)
        self.encoder = nn.LSTM(embedding, encoder, bidirectional=True, batch_first=True)
        self.decoder = nn.LSTMCell(embedding + decoder, decoder)
        self.keys = nn.Linear(2 * encoder, decoder, bias=False)
        self.query, self.energy = nn.Linear(decoder, decoder), nn.Linear(decoder, 1)
        self.mix, self.scores = nn.Linear(2 * encoder + decoder, decoder), nn.Linear(decoder, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, _ = self.encoder(self.source(source))
        keys, words, state = self.keys(memory), self.target(target), None
        mixed = memory.new_zeros(len(source), self.decoder.hidden_size)
        outputs = []
        for t in range(target.shape[1]):
            state = self.decoder(torch.cat([words[:, t], mixed.to(words.dtype)], -1), state)
            energies = self.energy(torch.tanh(keys + self.query(state[0])[:, None])).squeeze(-1)
            context = (energies.softmax(-1).unsqueeze(1).to(memory.dtype) @ memory)[:, 0]
            mixed = torch.tanh(self.mix(torch.cat([state[0].to(context.dtype), context], -1)))
            outputs.append(mixed)
        scores: Tensor = self.scores(torch.stack(outputs, 1))
        return scores


class TransformerTranslator(nn.Module):
    def __init__(self, vocabulary: int, width: int, blocks: int, heads: int, inner: int, steps: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.blocks = nn.Transformer(width, heads, blocks, blocks, inner, 0.3, batch_first=True, norm_first=True)
        self.scores = nn.Linear(width, vocabulary)
        self.mask: Tensor
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(steps))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.blocks(self.source(source), self.target(target), tgt_mask=self.mask, tgt_is_causal=True)
        scores: Tensor = self.scores(x)
        return scores


class Reader(nn.Module):
    """Words, or frames, through a bidirectional LSTM; a class for each step, or one for the whole."""

    def __init__(self, inputs: nn.Module, width: int, hidden: int, layers: int, classes: int, whole: bool) -> None:
        super().__init__()
        self.inputs, self.whole = inputs, whole
        self.layer = nn.LSTM(width, hidden, layers, bidirectional=True, batch_first=True)
        self.scores = nn.Linear(2 * hidden, classes)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.inputs(x), lengths, batch_first=True, enforce_sorted=False)
        output, (final, _) = self.layer(packed)
        if self.whole:
            scores: Tensor = self.scores(torch.cat([final[-2], final[-1]], -1))
            return scores
        padded, _ = pad_packed_sequence(output, batch_first=True)
        by_step: Tensor = self.scores(padded)
        return by_step


class LineReader(nn.Module):
    """Lines of print: two convolutions, two bidirectional LSTMs, and scores for CTC."""

    def __init__(self, height: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 32, 3, 2, 1), nn.Conv2d(32, 64, 3, 2, 1)
        width = 64 * (height // 4)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.3)
        self.layer = nn.LSTM(width, hidden, 2, bidirectional=True, batch_first=True, dropout=0.3)
        self.scores = nn.Linear(2 * hidden, classes)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        maps = F.relu(self.second(F.relu(self.first(x.unsqueeze(1)))))  # (B, 64, T / 4, height / 4)
        x = self.dropout(self.norm(maps.transpose(1, 2).flatten(2)))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        scores: Tensor = self.scores(self.dropout(output))
        return scores


class SeriesModel(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(inputs, hidden, batch_first=True), nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, state: Any) -> Tensor:
        output, _ = self.layer(x, state)
        values: Tensor = self.head(self.dropout(output))
        return values


class PictureWriter(nn.Module):
    """Xu's: a small residual network gives regions, and an LSTM with additive attention and a gate writes."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for size in (32, 64, 128):
            layers += [nn.Conv2d(before, size, 3, 2, 1), Residual(size)]
            before = size
        self.pictures = nn.Sequential(*layers, nn.GroupNorm(8, before), nn.ReLU())
        self.region, self.norm, self.dropout = nn.Linear(before, width), nn.LayerNorm(width), nn.Dropout(0.3)
        self.embedding, self.cell = nn.Embedding(vocabulary, width), nn.LSTMCell(2 * width, width)
        self.first = nn.ModuleList([nn.Linear(width, width) for _ in "hc"])
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.energy, self.gate = nn.Linear(width, 1, bias=False), nn.Linear(width, 1)
        self.mix, self.scores = nn.Linear(3 * width, width), nn.Linear(width, vocabulary)

    def forward(self, pictures: Tensor, target: Tensor) -> Tensor:
        maps = self.pictures(pictures.permute(0, 3, 1, 2))
        memory = self.dropout(self.norm(self.region(maps.flatten(2).transpose(1, 2))))
        keys, words = self.key(memory), self.dropout(self.embedding(target))
        h, c = (torch.tanh(layer(memory.mean(1))) for layer in self.first)
        outputs = []
        for t in range(target.shape[1]):
            energies = self.energy(torch.tanh(keys + self.query(h)[:, None])).squeeze(-1)
            context = (energies.softmax(-1).unsqueeze(1).to(memory.dtype) @ memory)[:, 0]
            context = torch.sigmoid(self.gate(h)) * context
            h, c = self.cell(torch.cat([words[:, t], context.to(words.dtype)], -1), (h, c))
            outputs.append(torch.cat([h.to(words.dtype), context.to(words.dtype), words[:, t]], -1))
        scores: Tensor = self.scores(self.dropout(torch.tanh(self.mix(self.dropout(torch.stack(outputs, 1))))))
        return scores


class Residual(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for _ in range(2):
            parts += [nn.GroupNorm(8, size), nn.ReLU(), nn.Conv2d(size, size, 3, 1, 1, bias=False)]
        self.layers = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(x)
        return out


def update_of(network: nn.Module, loss_of: Step, optimizer: str, clip: float = 5.0) -> Step:
    """Forward, backward, clipping and the optimiser's step under autocast to bfloat16."""
    parameters: Sequence[nn.Parameter] = list(network.parameters())
    made: torch.optim.Optimizer
    if optimizer == "sgd":
        made = torch.optim.SGD(parameters, lr=1.0, fused=True)
    else:
        made = torch.optim.AdamW(parameters, lr=1e-3, fused=True, capturable=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss: Any = loss_of()
        made.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, clip)
        made.step()

    return step


def in_graph(step: Step) -> Step:
    """The same update in a CUDA graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def language_update(network: nn.Module, ids: Tensor, optimizer: str, state: Any = None) -> Step:
    def loss() -> Tensor:
        scores = network(ids[:, :-1], state)[0] if state is not None else network(ids[:, :-1])
        return F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())

    return update_of(network, loss, optimizer)


def translator_update(network: nn.Module, source: Tensor, target: Tensor) -> Step:
    def loss() -> Tensor:
        scores = network(source, target[:, :-1])
        return F.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)

    return update_of(network, loss, "adamw")
