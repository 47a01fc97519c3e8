"""A Transformer language model: training against plain torch in nanoGPT's style, writing with a cache against without.

    python benchmarks/transformer_lm.py [--size 128] [--blocks 4] [--steps 128] [--rows 8] [--seconds 20] [--device cpu]

The plain model has one matrix for queries, keys and values, torch's fused attention, GELU, and norms before each part.
It takes our weights, and must give our gradients before anything is timed. Both make whole updates with AdamW on the
same batch. Then 512 tokens are written greedily after an empty prompt: by steps that cache keys and values, and by a
loop that reads the whole text again for each token. Both must choose the same tokens. Must: 0.95 and 5.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.nn.functional as F
from measure import check, interleaved, machine, row, show, write
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.models import LanguageModelSettings, TransformerLM, language_model
from unrolled.search import Limits, Sampling, sample
from unrolled.tasks.generate.task import Generate

VOCABULARY, TOKENS = 65, 512


class Block(nn.Module):
    """A block as nanoGPT writes it."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention, self.projection = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide, self.narrow = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        rows, steps, size = x.shape
        parts = self.attention(self.norm1(x)).split(size, dim=2)
        q, k, v = (part.view(rows, steps, self.heads, size // self.heads).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).contiguous().view(rows, steps, size))
        out: Tensor = x + self.narrow(F.gelu(self.wide(self.norm2(x))))
        return out


class Plain(nn.Module):
    """nanoGPT's model, with the numbers of ours."""

    def __init__(self, ours: TransformerLM, heads: int) -> None:
        super().__init__()
        size = ours.embedding.embedding_dim
        self.scale = ours.scale
        self.embedding = nn.Embedding(VOCABULARY, size)
        self.positions = nn.Embedding(ours.context, size)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in ours.encoder.layers)
        self.norm, self.scores = nn.LayerNorm(size), nn.Linear(size, VOCABULARY)
        self.embedding.load_state_dict(ours.embedding.state_dict())
        self.positions.load_state_dict(ours.positions.state_dict())
        self.scores.load_state_dict(ours.scores.state_dict())
        norm: Any = ours.encoder.norm
        self.norm.load_state_dict(norm.state_dict())
        for mine, other in zip(self.blocks, ours.encoder.layers, strict=True):
            self._take(mine, other)

    @torch.no_grad()
    def _take(self, mine: Any, other: Any) -> None:
        mine.attention.weight.copy_(other.self_attn.in_proj_weight)
        mine.attention.bias.copy_(other.self_attn.in_proj_bias)
        pairs = {"projection": other.self_attn.out_proj, "wide": other.linear1, "narrow": other.linear2}
        for name, layer in {**pairs, "norm1": other.norm1, "norm2": other.norm2}.items():
            getattr(mine, name).load_state_dict(layer.state_dict())

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * self.scale + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.scores(self.norm(x))
        return scores


def training(options: argparse.Namespace) -> dict[str, float]:
    settings = LanguageModelSettings(
        kind="transformer", hidden_size=options.size, blocks=options.blocks, heads=4, context=options.steps,
        positions="learned", dropout=0.0,
    )  # fmt: skip
    ours = language_model(settings, VOCABULARY, 0).to(options.device)
    assert isinstance(ours, TransformerLM)
    plain = Plain(ours, 4).to(options.device)
    ids = torch.randint(VOCABULARY, (options.rows, options.steps + 1), device=options.device)
    batch, task = Batch(ids[:, :-1], ids[:, 1:]), Generate()
    makers = [torch.optim.AdamW(network.parameters(), lr=1e-9, fused=True) for network in (ours, plain)]

    def update_ours() -> None:
        makers[0].zero_grad(set_to_none=True)
        loss = task.loss(ours, batch, None)
        (loss.sum / loss.count).backward()  # type: ignore[no-untyped-call]
        makers[0].step()

    def update_plain() -> None:
        makers[1].zero_grad(set_to_none=True)
        F.cross_entropy(plain(batch.inputs).flatten(0, 1), batch.targets.flatten()).backward()  # type: ignore[no-untyped-call]
        makers[1].step()

    update_ours()
    update_plain()
    check("gradient of the embedding", ours.embedding.weight.grad, plain.embedding.weight.grad, 1e-4)
    check("gradient of the positions", ours.positions.weight.grad, plain.positions.weight.grad, 1e-4)
    return interleaved({"ours": update_ours, "plain": update_plain}, options.seconds)


@torch.no_grad()
def writing(options: argparse.Namespace) -> dict[str, float]:
    settings = LanguageModelSettings(
        kind="transformer", hidden_size=options.size, blocks=options.blocks, heads=4, context=TOKENS + 1, dropout=0.0
    )
    network = language_model(settings, VOCABULARY, 0).to(options.device).eval()
    for parameter in network.parameters():  # peaky, so choices do not depend on the last bit
        parameter.mul_(1.5)

    def kept() -> list[int]:
        return sample(network, [[0]], Limits(max_tokens=TOKENS), sampling=Sampling(temperature=0))[0].tokens

    def again() -> list[int]:
        text = [0]
        for _ in range(TOKENS):
            scores, _ = network(torch.tensor([text], device=options.device))
            text.append(int(scores[0, -1].argmax()))
        return text[1:]

    if kept() != again():
        raise SystemExit("the texts differ: nothing is timed")
    return interleaved({"kept": kept, "again": again}, options.seconds, least=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("size", 128), ("blocks", 4), ("steps", 128), ("rows", 8), ("seconds", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    update, text = training(options), writing(options)
    tokens = options.rows * options.steps
    rows = [
        row(
            "training, tokens/s against plain torch", update["plain"] / update["ours"], "0.95", "",
            f"{tokens / update['ours']:,.0f} tokens/s",
        ),
        row(
            f"writing {TOKENS} tokens, kept against read again", text["again"] / text["kept"], "5", "",
            f"{TOKENS / text['kept']:,.0f} tokens/s",
        ),
    ]  # fmt: skip
    show(f"Transformer of width {options.size}, {options.blocks} blocks, on {options.device}", rows)
    write(f"transformer_lm-{options.device}", machine(), rows, [{"update": update, "text": text}])


if __name__ == "__main__":
    main()
