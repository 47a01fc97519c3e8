"""Trace: every state and gate of a run, and the gradients that flowed through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unrolled.cells.base import AnyCell, State, Step
from unrolled.errors import UserError, unknown_name

CellOf = Callable[[Mapping[str, Tensor]], AnyCell]
"""Builds a cell from named parameters, with the masks of the traced run."""


@dataclass(frozen=True)
class ScanTrace:
    """The states and gates of one cell over time, batch first, in the input's order for both directions.

    Steps past a sequence's length hold zeros in `gates` and the frozen state in `states`.
    """

    x: Tensor  # (B, T, D)
    gates_x: Tensor  # (B, T, G)
    output: Tensor  # (B, T, O)
    entering: dict[str, Tensor]  # name → (B, T, size), the state before each step
    states: dict[str, Tensor]  # name → (B, T, size), the state after each step
    gates: dict[str, Tensor]  # name → (B, T, H)
    probes: dict[str, Tensor]  # name → (B, T, size), zeros added to the states; their gradient is ∂L/∂state_t
    taken: dict[str, Tensor]  # name → (B, T, 1 or size), the share of the state written by the step
    output_is_state: bool


class Trace:
    """A traced run of a layer: `states`, `gates` and, for a loss computed from `output`, its gradients.

    Layers and directions are named as torch names parameters: "l0", "l0_reverse", "l1", …; tensors are batch first.

    >>> import unrolled
    >>> layer = unrolled.LSTM(3, 4, batch_first=True)
    >>> trace = layer.trace(torch.randn(2, 7, 3))
    >>> trace.gates["l0"]["f"].shape, trace.states["l0"]["c"].shape
    (torch.Size([2, 7, 4]), torch.Size([2, 7, 4]))
    >>> loss = trace.output[:, -1].sum()
    >>> trace.state_gradients(loss)["l0"]["h"].shape  # ∂L/∂h_t for every t
    torch.Size([2, 7, 4])
    >>> trace.weight_gradients(loss)["weight_hh_l0"].shape  # each step's share of ∂L/∂U
    torch.Size([7, 16, 4])
    """

    def __init__(
        self,
        output: Tensor,
        state: Tensor | State,
        scans: dict[str, ScanTrace],
        cells: dict[str, tuple[CellOf, dict[str, Tensor]]],
        engine: str,
    ) -> None:
        self.output = output
        self.state = state
        self.scans = scans
        self.engine = engine
        self.cells = cells

    def __repr__(self) -> str:
        batch, steps = next(iter(self.scans.values())).x.shape[:2]
        return f"Trace({', '.join(self.scans)}: {batch} sequences of {steps} steps, engine {self.engine})"

    @property
    def states(self) -> dict[str, dict[str, Tensor]]:
        """`states["l0"]["h"]` is h after every step, (B, T, H)."""
        return {name: scan.states for name, scan in self.scans.items()}

    @property
    def gates(self) -> dict[str, dict[str, Tensor]]:
        """`gates["l0"]["f"]` is the gate after its activation, (B, T, H)."""
        return {name: scan.gates for name, scan in self.scans.items()}

    def state_gradients(self, loss: Tensor) -> dict[str, dict[str, Tensor]]:
        """∂L/∂h_t (and ∂L/∂c_t) for every layer, direction and t: `["l0"]["h"]` is (B, T, H).

        The total derivative with respect to the state after step t, through all its later uses. For c these are later
        steps; the path from c_t to h_t is inside step t.
        """
        return {name: self._gradients(scan, loss)[0] for name, scan in self.scans.items()}

    def weight_gradients(self, loss: Tensor) -> dict[str, Tensor]:
        """Each step's own contribution to the gradient of the shared weights: name → (T, *shape).

        Every step has its own copy W(t) of each weight: ∇_W L = Σ_t ∇_{W(t)} L, so the sum over the first dimension is
        autograd's gradient. Memory is T times the weights.
        """
        contributions: dict[str, Tensor] = {}
        for name, scan in self.scans.items():
            shares = list(self._shares(name, scan, loss))
            for key in self.cells[name][1]:
                contributions[key] = torch.stack([share[key] for share in shares])
        return contributions

    def weight_gradient_norms(self, loss: Tensor, layer: str, steps: Sequence[int] | None = None) -> dict[str, Tensor]:
        """The norms of one layer's `weight_gradients`, name → (T,), without keeping them; optionally of some steps."""
        if layer not in self.scans:
            raise unknown_name("layer", layer, self.scans)
        norms = [
            {key: share.norm() for key, share in shares.items()}
            for shares in self._shares(layer, self.scans[layer], loss, steps)
        ]
        return {key: torch.stack([step[key] for step in norms]) for key in self.cells[layer][1]}

    def under(self, above: Trace) -> Trace:
        """This trace joined with that of the layers above it, whose numbers follow on."""
        scans, cells = dict(self.scans), dict(self.cells)
        depth = 1 + max(int(name[1:].removesuffix("_reverse")) for name in scans)
        for name, (cell_of, parameters) in above.cells.items():
            number, _, rest = name[1:].partition("_")
            raised = f"l{int(number) + depth}" + (f"_{rest}" if rest else "")
            old = {key.removesuffix(name) + raised: key for key in parameters}
            scans[raised] = above.scans[name]
            cells[raised] = _renamed(cell_of, old), {new: parameters[key] for new, key in old.items()}
        return Trace(above.output, above.state, scans, cells, self.engine)

    def _shares(
        self, name: str, scan: ScanTrace, loss: Tensor, steps: Sequence[int] | None = None
    ) -> Iterator[dict[str, Tensor]]:
        cell_of, parameters = self.cells[name]
        states, output = self._gradients(scan, loss)
        # the part of each step's result that lengths and zoneout keep, for all steps at once
        states = {name: states[name] * scan.taken[name] for name in scan.states}
        for t in range(scan.x.shape[1]) if steps is None else steps:
            yield _step_gradients(scan, t, cell_of, parameters, states, output)

    def _gradients(self, scan: ScanTrace, loss: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        if not scan.probes or not loss.requires_grad:
            raise UserError(
                "This trace cannot give gradients: it was made, or its loss computed, without gradients.",
                "Call layer.trace(x) outside torch.no_grad() and make the loss from trace.output.",
            )
        if loss.dim() > 0:
            raise UserError(f"The loss has shape {tuple(loss.shape)}.", "Expected one number: use its sum or mean.")
        wanted = [*scan.probes.values(), scan.output]
        try:
            found = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if "second time" not in str(error):
                raise
            fix = "Ask for gradients before loss.backward(), or use loss.backward(retain_graph=True)."
            raise UserError("The loss's graph is gone: backward() was called on it.", fix) from None
        if all(gradient is None for gradient in found):
            raise UserError("The loss does not depend on this trace.", "Make it from trace.output.")
        filled = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, found, strict=True)]
        return dict(zip(scan.probes, filled, strict=False)), filled[-1]


def _renamed(cell_of: CellOf, old: Mapping[str, str]) -> CellOf:
    return lambda parameters: cell_of({old[new]: value for new, value in parameters.items()})


def _step_gradients(
    scan: ScanTrace,
    t: int,
    cell_of: CellOf,
    parameters: dict[str, Tensor],
    state_gradients: dict[str, Tensor],
    output_gradient: Tensor,
) -> dict[str, Tensor]:
    """∇_{W(t)} L: the gradient of the results of step t, backpropagated through this step only."""
    copies = {key: value.detach().requires_grad_() for key, value in parameters.items()}
    with torch.enable_grad():
        cell = cell_of(copies)
        entering = tuple(entering[:, t].detach() for entering in scan.entering.values())
        step = Step(*cell.step(cell.project(scan.x[:, t].detach()), entering))
    results = list(step.state)
    gradients = [state_gradients[name][:, t] for name in scan.states]
    if not scan.output_is_state:
        results.append(step.output)
        gradients.append(output_gradient[:, t])
    pairs = [(r, g.to(r.dtype)) for r, g in zip(results, gradients, strict=True) if r.requires_grad]
    if not pairs:
        return {key: torch.zeros_like(value) for key, value in copies.items()}
    found = torch.autograd.grad([r for r, _ in pairs], list(copies.values()), [g for _, g in pairs], allow_unused=True)
    return {
        key: torch.zeros_like(value) if gradient is None else gradient
        for (key, value), gradient in zip(copies.items(), found, strict=True)
    }
