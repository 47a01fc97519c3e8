"""Train each cell on the help pages that come with Python, then show a forget gate and the gradients.

Run it with `python examples/layers.py`. It takes about ten seconds on two cores.
"""

from __future__ import annotations

import time
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

import unrolled

STEPS, BATCH, LENGTH, HIDDEN = 200, 32, 32, 64


class MinimalGatedUnit(unrolled.Cell):
    """A user-defined cell: a GRU with one gate (Zhou et al. 2016)."""

    gate_names = ("f", "n")

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.w = nn.Linear(input_size, 2 * hidden_size)
        self.u_f = nn.Linear(hidden_size, hidden_size, bias=False)
        self.u_n = nn.Linear(hidden_size, hidden_size, bias=False)

    def project(self, x: Tensor) -> Tensor:
        return self.w(x)  # type: ignore[no-any-return]

    def step(self, gates_x: Tensor, state: tuple[Tensor, ...]) -> unrolled.Step:
        (h,) = state
        f_x, n_x = gates_x.chunk(2, -1)
        f = torch.sigmoid(f_x + self.u_f(h))
        n = torch.tanh(n_x + self.u_n(f * h))
        h = (1 - f) * h + f * n
        return unrolled.Step(h, (h,), (f, n))


def main() -> None:
    torch.manual_seed(0)
    text = "\n".join(topics[key] for key in sorted(topics))
    symbols = sorted(set(text))
    ids = torch.tensor([symbols.index(c) for c in text])
    train, valid = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :][: BATCH * 200]
    print(f"Text: the help pages inside Python (pydoc_data.topics), {len(ids):,} characters, {len(symbols)} symbols.")
    print("Compare these scores only with each other.\n")

    layers: dict[str, nn.Module] = {
        "vanilla RNN": unrolled.RNN(32, HIDDEN, batch_first=True),
        "GRU, reset after": unrolled.GRU(32, HIDDEN, batch_first=True),
        "GRU, reset before": unrolled.GRU(32, HIDDEN, batch_first=True, reset_after=False),
        "LSTM": unrolled.LSTM(32, HIDDEN, batch_first=True, init="forget_bias"),
        "LSTM with peepholes": unrolled.LSTM(32, HIDDEN, batch_first=True, init="forget_bias", peephole=True),
        "a cell of your own": unrolled.Recurrent(MinimalGatedUnit, 32, HIDDEN),
    }
    print(f"{'cell':<20} {'bits/char':>9} {'seconds':>8}  engine")
    trained = {}
    for name, layer in layers.items():
        model = nn.ModuleDict(
            {"in": nn.Embedding(len(symbols), 32), "layer": layer, "out": nn.Linear(HIDDEN, len(symbols))}
        )
        start = time.perf_counter()
        learn(model, train)
        seconds = time.perf_counter() - start
        engine = layer.backend_for(torch.zeros(1, 2, 32)).engine  # type: ignore[operator]
        print(f"{name:<20} {bits(model, valid):>9.3f} {seconds:>8.1f}  {engine}", flush=True)
        trained[name] = model

    show_gate(trained["LSTM"], symbols, "for item in items: print(item)")
    show_gradients(trained, train[:64].unsqueeze(0))


def learn(model: nn.ModuleDict, ids: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(STEPS):
        starts = torch.randint(len(ids) - LENGTH - 1, (BATCH, 1))
        batch = ids[starts + torch.arange(LENGTH + 1)]  # (B, T + 1)
        loss = cross_entropy(model, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def cross_entropy(model: nn.ModuleDict, batch: Tensor) -> Tensor:
    output, _ = model["layer"](model["in"](batch[:, :-1]))
    return nn.functional.cross_entropy(model["out"](output).flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def bits(model: nn.ModuleDict, ids: Tensor) -> float:
    return cross_entropy(model, ids.view(BATCH, -1)).item() / torch.log(torch.tensor(2.0)).item()


def show_gate(model: nn.ModuleDict, symbols: list[str], text: str) -> None:
    """Print the forget gate over a text, for the unit that varies most."""
    x = model["in"](torch.tensor([[symbols.index(c) for c in text]]))
    gate = model["layer"].trace(x).gates["l0"]["f"][0]  # type: ignore[operator]  # (T, H)
    unit = int(gate.std(0).argmax())
    print(f"\nThe LSTM's forget gate, unit {unit} of {gate.shape[1]}, over a line of Python (low: forgets):")
    print("  " + text)
    print("  " + bars(gate[:, unit]))


def show_gradients(trained: dict[str, nn.ModuleDict], ids: Tensor) -> None:
    """Print ‖∂L_T/∂h_t‖: how much of the last loss reaches each earlier state."""
    print("\n‖∂L/∂h_t‖ of the last character's loss, 64 steps, scaled to its maximum (log):")
    for name, model in trained.items():
        trace = model["layer"].trace(model["in"](ids[:, :-1]))  # type: ignore[operator]
        loss = nn.functional.cross_entropy(model["out"](trace.output[:, -1]), ids[:, -1])
        norms = trace.state_gradients(loss)["l0"]["h"][0].norm(dim=-1)  # (T,)
        logs = norms.clamp(min=1e-12).log10()
        print(f"  {name:<20} {bars(1 + (logs - logs.max()) / 6)}  {norms[0] / norms.max():.0e} left after 63 steps")


def bars(values: Tensor) -> str:
    """A line of block characters for numbers from 0 to 1."""
    return "".join(" ▁▂▃▄▅▆▇█"[round(8 * v)] for v in values.clamp(0, 1).tolist())


if __name__ == "__main__":
    main()
