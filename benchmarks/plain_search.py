"""Beam search and sampling as one would write them in plain torch: the peers of search_gpu.py.

They are batched over inputs and hypotheses, never loop over rows, and look at one value in a step: whether all rows are
done. The networks' weights are ours; the steps of the decoders are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]  # tokens (B,), state → scores (B, V), new state


@torch.no_grad()
def beam_search(
    step: Step, state: list[Tensor], rows: int, length: int, size: int, begin: int, end: int, banned: Sequence[int]
) -> list[list[int]]:
    """The best output of each row, of `length` tokens with its end; the state has `size` rows for each input.

    Outputs are ranked by log P / ((5 + length) / 6). A row is done when no hypothesis can become better than its best.
    """
    device = state[0].device
    totals = torch.full((rows, size), -torch.inf, device=device)
    totals[:, 0] = 0.0
    tokens = torch.zeros(rows, size, 0, dtype=torch.int64, device=device)
    best_score = torch.full((rows,), -torch.inf, device=device)
    best_tokens = torch.full((rows, length), end, device=device)
    done = torch.zeros(rows, dtype=torch.bool, device=device)
    last = torch.full((rows * size,), begin, device=device)
    offsets = torch.arange(rows, device=device)[:, None] * size
    early = torch.tensor([*banned, end], device=device)  # an output has at least `length` tokens
    for time in range(length):
        scores, state = step(last, state)
        log_probs = scores.float().log_softmax(-1)
        log_probs = log_probs.index_fill_(1, early if time + 1 < length else early[:-1], -torch.inf)
        words = log_probs.shape[-1]
        best, flat = (totals.view(-1, 1) + log_probs).view(rows, -1).topk(2 * size)
        origin, token = flat // words, flat % words
        ends = token == end
        found = best[:, :size].masked_fill(~ends[:, :size], -torch.inf)
        origins = origin[:, :size]
        if time + 1 == length:  # every hypothesis may end at its row's last step
            found = torch.cat([found, totals + log_probs[:, end].view(rows, size)], 1)
            origins = torch.cat([origins, torch.arange(size, device=device).expand(rows, -1)], 1)
        score, which = (found / ((6 + time) / 6)).max(1)
        better = (score > best_score) & ~done
        best_score = torch.where(better, score, best_score)
        path = tokens.gather(1, origins.gather(1, which[:, None])[..., None].expand(-1, 1, time))[:, 0]
        best_tokens[:, :time] = torch.where(better[:, None], path, best_tokens[:, :time])
        totals, chosen = best.masked_fill(ends, -torch.inf).topk(size)
        origin, token = origin.gather(1, chosen), token.gather(1, chosen)
        tokens = torch.cat([tokens.gather(1, origin[..., None].expand(-1, -1, time)), token[..., None]], -1)
        order = (offsets + origin).view(-1)
        state = [part.index_select(0, order) for part in state]
        last = token.view(-1)
        done = done | (best_score >= totals[:, 0] / ((5 + length) / 6))
        if done.all():
            break
    return [_until(row, end) for row in best_tokens.tolist()]


def _until(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens


class AttentionDecoder:
    """Luong's decoder over one LSTM cell, with weights of ours."""

    def __init__(self, network: Any) -> None:
        attend = network.decoder.attend
        self.network, self.attend = network, attend
        rnn = attend.rnn
        self.cell = nn.LSTMCell(rnn.input_size + attend.feed_size, rnn.hidden_size).to(network.device)
        with torch.no_grad():
            self.cell.weight_ih.copy_(torch.cat([rnn.weight_ih_l0, attend.weight_feed], 1))
            self.cell.weight_hh.copy_(rnn.weight_hh_l0)
            self.cell.bias_ih.copy_(rnn.bias_ih_l0)
            self.cell.bias_hh.copy_(rnn.bias_hh_l0)

    def start(self, memory: Any, size: int) -> list[Tensor]:
        (h, c, fed), _, shared = self.network.start(memory)
        keys, values, mask = shared.value
        self.keys, self.values = (part.repeat_interleave(size, 0) for part in (keys, values))
        self.hidden = torch.where(mask, 0.0, -torch.inf).repeat_interleave(size, 0)
        return [part.repeat_interleave(size, 0) for part in (h, c, fed)]

    def __call__(self, tokens: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        h, c, fed = state
        x = self.network.embedding(tokens)
        h, c = self.cell(torch.cat([x, fed], -1), (h, c))
        scores = torch.bmm(self.keys, h[..., None].to(self.keys.dtype))[..., 0] + self.hidden
        context = torch.bmm(scores.softmax(-1)[:, None].to(self.values.dtype), self.values)[:, 0]
        fed = torch.tanh(self.attend.mix(torch.cat([context, h], -1)))
        return self.network.scores(fed), [h, c, fed]


class TransformerSteps:
    """Blocks with a growing cache of keys and values, with weights of ours: a decoder, or a language model."""

    def __init__(self, network: Any, stack: Any, positions: Any) -> None:
        self.network, self.layers, self.norm, self.positions = network, list(stack.layers), stack.norm, positions
        self.memory: list[tuple[Tensor, Tensor]] = []

    def start(self, memory: Any, size: int) -> list[Tensor]:
        kept = self.network.decoder.start(memory.memory, memory.mask)
        self.memory = [tuple(part.repeat_interleave(size, 0) for part in pair) for pair in kept.memory]
        self.mask = memory.mask.repeat_interleave(size, 0)[:, None, None]
        return self.empty(len(self.mask), self.memory[0][0].dtype)

    def empty(self, rows: int, dtype: torch.dtype) -> list[Tensor]:
        attention = self.layers[0].self_attn
        shape = (rows, attention.num_heads, 0, attention.size // attention.num_heads)
        return [torch.zeros(shape, device=self.network.device, dtype=dtype) for _ in range(2 * len(self.layers))]

    def __call__(self, tokens: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        time, rows = state[0].shape[2], len(tokens)
        x = self.positions(self.network.embedding(tokens[:, None]) * self.network.scale, time)
        new = []
        for depth, layer in enumerate(self.layers):
            attention = layer.self_attn
            heads = attention.num_heads
            projected = F.linear(layer.norm1(x), attention.in_proj_weight, attention.in_proj_bias)
            query, key, value = projected.view(rows, 3, heads, 1, -1).unbind(1)
            keys, values = torch.cat([state[2 * depth], key], 2), torch.cat([state[2 * depth + 1], value], 2)
            new += [keys, values]
            x = x + attention.out_proj(F.scaled_dot_product_attention(query, keys, values).reshape(rows, 1, -1))
            if self.memory:
                x = x + self._look(layer, x, *self.memory[depth])
            hidden = layer.activation(layer.linear1((layer.norm3 if self.memory else layer.norm2)(x)))
            x = x + layer.linear2(hidden)
        return self.network.scores(self.norm(x)[:, 0]), new

    def _look(self, layer: Any, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        attention, rows = layer.multihead_attn, len(x)
        weight, bias = attention.in_proj_weight[: attention.size], attention.in_proj_bias[: attention.size]
        query = F.linear(layer.norm2(x), weight, bias).view(rows, attention.num_heads, 1, -1)
        seen = F.scaled_dot_product_attention(query, keys, values, self.mask).reshape(rows, 1, -1)
        looked: Tensor = attention.out_proj(seen)
        return looked


class RecurrentSteps:
    """The steps of a recurrent language model on torch.nn.LSTM, with weights of ours."""

    def __init__(self, network: Any) -> None:
        layer = network.layer
        self.network = network
        self.lstm = nn.LSTM(layer.input_size, layer.hidden_size, layer.num_layers, batch_first=True).to(network.device)
        self.lstm.load_state_dict(layer.state_dict())
        self.lstm.flatten_parameters()

    def empty(self, rows: int) -> Any:
        return None

    def __call__(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        output, state = self.lstm(self.network.embedding(tokens[:, None]), state)
        return self.network.scores(output[:, 0]), state


@torch.no_grad()
def sample(
    step: Step, state: Any, rows: int, count: int, begin: int, banned: Sequence[int], temperature: float
) -> list[list[int]]:
    """`count` tokens of each row."""
    last = torch.full((rows,), begin, device=step.network.device)  # type: ignore[attr-defined]
    forbidden = torch.tensor(list(banned), dtype=torch.int64, device=last.device)
    written = []
    for _ in range(count):
        scores, state = step(last, state)
        scores = scores.float().index_fill_(1, forbidden, -torch.inf)
        last = scores.argmax(-1) if temperature == 0 else _drawn(scores / temperature)
        written.append(last)
    found: list[list[int]] = torch.stack(written, 1).tolist()
    return found


def _drawn(scores: Tensor) -> Tensor:
    return torch.multinomial(scores.softmax(-1), 1)[:, 0]
