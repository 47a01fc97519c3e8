"""A model's inside on a text, as numbers and as pictures (S16, S34)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unrolled.cells import Trace
from unrolled.errors import UserError, unknown_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXACT_STEPS = 512
GATES = {
    "i": "i, input gate",
    "f": "f, forget gate",
    "g": "g, candidate",
    "o": "o, output gate",
    "r": "r, reset gate",
    "z": "z, update gate",
    "n": "n, candidate",
}


class TextTrace:
    """What happened at every token: gates, states, losses, and how far back each loss reaches.

    `figure(kind)` draws it: "gates", "states" or "gradients"; the figure's `savefig` writes PNG, SVG or PDF.
    """

    def __init__(self, tokens: list[str], trace: Trace, losses: Tensor) -> None:
        self.tokens = tokens
        self.trace = trace
        self.losses = losses.detach()
        self._losses = losses

    def __repr__(self) -> str:
        return f"TextTrace({len(self.tokens)} tokens, mean loss {float(self.losses.mean()):.3f} nats, {self.trace!r})"

    @property
    def gates(self) -> dict[str, dict[str, Tensor]]:
        """`gates["l0"]["f"]`, (T, H)."""
        return {name: {g: v[0].detach() for g, v in gates.items()} for name, gates in self.trace.gates.items()}

    @property
    def states(self) -> dict[str, dict[str, Tensor]]:
        """`states["l0"]["h"]`, (T, H)."""
        return {name: {s: v[0].detach() for s, v in states.items()} for name, states in self.trace.states.items()}

    def gradients(self, layer: str = "l0") -> Tensor:
        """‖∂L_t/∂h_j‖ for every pair of steps, (T, T): row t, column j; zero where j > t.

        Exact up to 512 steps; a longer text is refused, since the picture would say no more.
        """
        steps = len(self.tokens)
        if steps > EXACT_STEPS:
            raise UserError(
                f"The text has {steps} tokens; gradients are computed for all pairs of at most {EXACT_STEPS}.",
                "Trace a shorter text.",
            )
        self._check_layer(layer)
        probe = self.trace.scans[layer].probes["h"]
        norms = torch.zeros(steps, steps)
        for t in range(steps):
            (gradient,) = torch.autograd.grad(self._losses[t], probe, retain_graph=True)
            norms[t] = gradient[0].norm(dim=-1).detach().cpu()
        return norms

    def by_distance(self, layer: str = "l0") -> Tensor:
        """The mean of ‖∂L_t/∂h_{t-d}‖ over t, for every distance d, (T,)."""
        norms = self.gradients(layer)
        return torch.stack([norms.diagonal(-d).mean() for d in range(len(norms))])

    def figure(self, kind: str = "gates", layer: str = "l0", units: int = 48) -> Figure:
        """Draws one aspect of one layer; of many units, those that move most."""
        drawings = {"gates": self._draw_heat, "states": self._draw_heat, "gradients": self._draw_gradients}
        if kind not in drawings:
            raise unknown_name("figure", kind, drawings)
        self._check_layer(layer)
        return drawings[kind](kind, layer, units)

    def _check_layer(self, layer: str) -> None:
        if layer not in self.trace.scans:
            raise unknown_name("layer", layer, self.trace.scans)

    def _draw_heat(self, kind: str, layer: str, units: int) -> Figure:
        from matplotlib.figure import Figure

        rows = (self.gates if kind == "gates" else self.states)[layer]
        if not rows:
            raise UserError("A vanilla RNN has no gates.", 'Use figure("states").')
        steps = len(self.tokens)
        figure = Figure(figsize=(min(40.0, 2.5 + 0.16 * max(steps, 20)), 1.2 + 1.9 * len(rows)), layout="constrained")
        axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
        for axis, (name, values) in zip(axes, rows.items(), strict=True):
            chosen = values.std(dim=0, correction=0).argsort(descending=True)[:units].sort().values
            bounded = kind == "gates" and name not in ("g", "n")
            limit = 1.0 if kind == "gates" or name == "h" else float(values.abs().max()) or 1.0
            image = axis.imshow(
                values[:, chosen].T.cpu().numpy(),
                aspect="auto",
                interpolation="nearest",
                cmap="viridis" if bounded else "RdBu",
                vmin=0.0 if bounded else -limit,
                vmax=limit,
            )
            which = (
                f"{len(chosen)} liveliest of {values.shape[1]}"
                if len(chosen) < values.shape[1]
                else f"all {len(chosen)}"
            )
            axis.set_ylabel(f"{GATES.get(name, name)}\n{which} units")
            axis.set_yticks([])
            figure.colorbar(image, ax=axis, fraction=0.03, pad=0.01)
        axes[-1].set_xticks(range(steps), [shown(token) for token in self.tokens], fontfamily="monospace", fontsize=8)
        axes[-1].tick_params(axis="x", rotation=0 if max(map(len, self.tokens)) <= 2 else 90)
        figure.suptitle(f"{kind} of layer {layer}; the token under each column is the one just read", fontsize=10)
        return figure

    def _draw_gradients(self, kind: str, layer: str, units: int) -> Figure:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        norms, means = self.gradients(layer), self.by_distance(layer)
        figure = Figure(figsize=(11, 4.6), layout="constrained")
        heat, curve = figure.subplots(1, 2)
        floor = float(norms[norms > 0].min()) if bool((norms > 0).any()) else 1e-12
        shade = norms.clamp(min=max(floor, 1e-12)).log10()
        shade[torch.ones_like(shade).triu(1).bool()] = torch.nan
        image = heat.imshow(shade.numpy(), aspect="auto", interpolation="nearest", cmap="magma")
        figure.colorbar(image, ax=heat, label="log10 ‖∂L_t/∂h_j‖")
        for axis in (heat.xaxis, heat.yaxis, curve.xaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        heat.set(xlabel="state j", ylabel="loss t", title=f"every loss to every state, layer {layer}")
        curve.semilogy(means.clamp(min=1e-30).numpy(), "o-", ms=3)
        curve.set(xlabel="distance t − j", ylabel="mean ‖∂L_t/∂h_j‖", title="by distance")
        curve.grid(alpha=0.3)
        return figure


def shown(token: str) -> str:
    """A token as it can be printed: blanks and line ends are marked."""
    return token.replace("\n", "↵").replace(" ", "␣").replace("\t", "⇥").replace("$", r"\$")
