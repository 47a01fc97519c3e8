"""The base of the drop-in RNN, LSTM and GRU: options, parameters beyond torch.nn's, and their forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from unrolled.cells import AnyCell, CellOf, GRUCell, LSTMCell, RNNCell, State, Trace
from unrolled.errors import UserError
from unrolled.kernels import Choice, ScanJob, check_engine, choose
from unrolled.kernels.lengths import check_lengths
from unrolled.kernels.recurrence import torch_engine
from unrolled.nn.checks import (
    check_choice,
    check_hidden,
    check_input,
    check_options,
    check_pair,
    check_probability,
    check_resets,
    check_steps,
)
from unrolled.nn.compiling import let_compiler_trace
from unrolled.nn.handover import Scriptable, handed_over, unusual
from unrolled.nn.init import fill_default, initialize
from unrolled.nn.stack import (
    COMBINATIONS,
    DirectionRun,
    Stacked,
    combine,
    run_stack,
    suffix,
    traced_cells,
    variational_mask,
    zoneout_keep,
)
from unrolled.nn.stepper import Stepper

EXTRAS: dict[str, Any] = {
    "layer_norm": False,
    "variational_dropout": 0.0,
    "zoneout": 0.0,
    "dropconnect": 0.0,
    "learned_state": False,
    "combine": "last",
    "init": "torch",
    "backend": "auto",
}
"""The options of every drop-in that torch.nn lacks, with their defaults."""


@dataclass(frozen=True)
class _Call:
    """One call's arguments, checked and batch first."""

    x: Tensor  # (B, T, D)
    states: State  # (L·directions, B, size) each
    lengths: Tensor | None
    resets: Tensor | None
    packed: PackedSequence | None
    unbatched: bool
    fresh: bool  # the states are zero: none were passed or learned


class DropIn(Scriptable, nn.RNNBase):
    """The base of the drop-ins, which differ in `cell_class` and the hooks below."""

    cell_class: ClassVar[type[RNNCell | LSTMCell | GRUCell]]
    own_options: ClassVar[dict[str, Any]] = {}

    def _set_options(self, options: Mapping[str, Any]) -> None:
        """Check and store the options, add their parameters and initialise."""
        known = {**EXTRAS, **self.own_options}
        check_options(type(self).__name__, {k: v for k, v in options.items() if k not in known}, known)
        settings = {**known, **options}
        self.layer_norm = bool(settings["layer_norm"])
        self.variational_dropout = check_pair("variational_dropout", settings["variational_dropout"])
        self.zoneout = self._check_zoneout(settings["zoneout"])
        self.dropconnect = check_probability("dropconnect", settings["dropconnect"])
        self.learned_state = bool(settings["learned_state"])
        self.combine = check_choice("combination", settings["combine"], COMBINATIONS)
        self.backend = check_engine(settings["backend"])
        self.init = (settings["init"],) if isinstance(settings["init"], str) else tuple(settings["init"])
        self._options = {k: v for k, v in options.items() if v != known[k]}
        self._add_parameters()
        if self.init != ("torch",):
            initialize(self, self.init)

    def _check_zoneout(self, value: object) -> tuple[float, ...]:
        names = self.cell_class.state_names
        return (check_probability("zoneout", value),) if len(names) == 1 else check_pair("zoneout", value)

    def _add_parameters(self) -> None:
        like = self._weight()
        shapes: dict[str, tuple[int, ...]] = {}
        for name in self._run_names():
            for kind, shape in self._extra_shapes().items():
                shapes[f"{kind}_{name}"] = shape
        if self.learned_state:
            for name, size in zip(self.cell_class.state_names, self._state_sizes(), strict=True):
                shapes[f"initial_{name}"] = (len(self._run_names()), size)
        if self.combine == "mix":
            shapes["combine_weight"] = (self.num_layers,)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(like.new_empty(shape)))
        for name in shapes:
            fill_default(name, self.get_parameter(name), self.hidden_size)

    def _extra_shapes(self) -> dict[str, tuple[int, ...]]:
        """Parameters of one direction of one layer beyond torch.nn's: kind → shape."""
        rows = self.hidden_size * max(len(self.cell_class.gate_names), 1)
        return {"norm_ih": (rows,), "norm_hh": (rows,)} if self.layer_norm else {}

    def _kinds(self) -> list[str]:
        """All parameters of one direction of one layer; the cell has a field of each name."""
        bias = ["bias_ih", "bias_hh"] if self.bias else []
        projection = ["weight_hr"] if self.proj_size else []
        return ["weight_ih", "weight_hh", *bias, *projection, *self._extra_shapes()]

    def _weight(self) -> Tensor:
        """A weight with the layer's dtype and device; by name, for parametrizations and functional_call."""
        weight: Tensor = getattr(self, "weight_hh_l0")  # noqa: B009
        return weight

    def _run_names(self) -> list[str]:
        directions = (False, True) if self.bidirectional else (False,)
        return [suffix(depth, reverse) for depth in range(self.num_layers) for reverse in directions]

    def _state_sizes(self) -> tuple[int, ...]:
        return (self.proj_size or self.hidden_size, self.hidden_size)[: len(self.cell_class.state_names)]

    def _cell_options(self) -> dict[str, Any]:
        return {}

    def reset_parameters(self) -> None:
        """Initialise all parameters again, according to `init`."""
        initialize(self, "torch")
        if getattr(self, "init", ("torch",)) != ("torch",):
            initialize(self, self.init)

    def extra_repr(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self._options.items()]
        return ", ".join([super().extra_repr(), *shown])

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | tuple[Tensor, Tensor] | None = None,
        lengths: Tensor | Iterable[int] | None = None,  # positional too, for the legacy ONNX exporter
        resets: Tensor | None = None,
    ) -> Any:
        """As torch.nn's: input and initial state → output and final state.

        `lengths` (B,) replaces packing: steps past a length keep the state and output zero. `resets`, in the input's
        layout of batch and time, or (B,) for the first step, is True where a new sequence begins: the state returns
        to zero, or to the learned initial state.
        """
        if unusual(input, self._parameters.get("weight_hh_l0")):
            done = handed_over(self, input, hx, lengths, resets)
            if done is not None:
                return done
        call = self._open(input, hx, lengths, resets)
        layers = self._runs(call)
        job = layers[0][0].job(call.x, call.lengths, call.resets)
        engine = choose(job, self.backend).engine
        if engine == "torch" and self._torch_can_run_all:
            with torch_engine.computable(call.x):
                return self._torch_forward(call)
        return self._close(call, self._stack(layers, call, self.backend, (job, engine)))

    def trace(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | tuple[Tensor, Tensor] | None = None,
        *,
        lengths: Tensor | Iterable[int] | None = None,
        resets: Tensor | None = None,
    ) -> Trace:
        """Run the layer and keep every state and gate: see `Trace`.

        The numbers equal those of `forward` on the same engine, `trace.engine`, bit for bit.
        """
        call = self._open(input, hx, lengths, resets)
        layers = self._runs(call)
        job = layers[0][0].job(call.x, call.lengths, call.resets)
        engine = choose(job, self.backend, traced=True).engine
        stacked = self._stack(layers, call, engine, (job, engine), traced=True)
        output, state = self._close(call, stacked)
        return Trace(output, state, stacked.scans, traced_cells(layers), engine)

    def stepper(self, weights: str = "fp32") -> Stepper:
        """The layer one step at a time, for streaming, with weights in fp32, fp16, int16 or int8: see `Stepper`.

        >>> import unrolled
        >>> stepper = unrolled.GRU(3, 4).stepper()
        >>> output, state = stepper(torch.zeros(1, 3), stepper.initial_state(1))
        """
        return Stepper(self, weights)

    def backend_for(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | tuple[Tensor, Tensor] | None = None,
        *,
        lengths: Tensor | Iterable[int] | None = None,
        resets: Tensor | None = None,
    ) -> Choice:
        """The engine that `forward` would run on with these arguments, and why.

        >>> import unrolled
        >>> print(unrolled.LSTM(3, 4, backend="reference").backend_for(torch.zeros(5, 2, 3)))
        reference: asked for by name
        """
        call = self._open(input, hx, lengths, resets)
        return choose(self._runs(call)[0][0].job(call.x, call.lengths, call.resets), self.backend)

    def _open(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | tuple[Tensor, Tensor] | None,
        lengths: Tensor | Iterable[int] | None,
        resets: Tensor | None,
    ) -> _Call:
        """Check the arguments and bring them into batch-first layout."""
        packed = None
        if isinstance(input, PackedSequence):
            packed = input
            if lengths is not None:
                raise UserError("Both a PackedSequence and lengths were given.", "A PackedSequence has its own.")
            x, lengths = pad_packed_sequence(packed, batch_first=True)
        else:
            x = input
        check_input(type(self).__name__, x, self.input_size, self._weight())
        unbatched = x.dim() == 2
        time_first = not self.batch_first and not unbatched
        if unbatched:
            if lengths is not None:
                raise UserError("lengths were given with an input of one sequence.", "Cut the sequence instead.")
            x = x.unsqueeze(0)
        elif time_first and packed is None:
            x = x.transpose(0, 1)
        batch, steps = x.shape[:2]
        check_steps(steps)
        if lengths is not None:
            lengths = check_lengths(lengths, batch, steps, x.device)
        if resets is not None:
            resets = resets.reshape(1, -1) if unbatched and isinstance(resets, Tensor) else resets
            resets = check_resets(resets, batch, steps, time_first=time_first, device=x.device)
        fresh = hx is None and not self.learned_state
        return _Call(x, self._states(hx, x, unbatched), lengths, resets, packed, unbatched, fresh)

    def _states(self, hx: Tensor | tuple[Tensor, Tensor] | None, x: Tensor, unbatched: bool) -> State:
        """The initial states, (L·directions, B, size) each: `hx`, learned or zero."""
        names, sizes, runs = self.cell_class.state_names, self._state_sizes(), len(self._run_names())
        if hx is None:
            learned = self._learned_states(x.shape[0])
            if learned is None and len(set(sizes)) == 1:  # one tensor: on a GPU each one is a launch
                return x.new_zeros(len(sizes), runs, x.shape[0], sizes[0]).unbind()
            return learned or tuple(x.new_zeros(runs, x.shape[0], size) for size in sizes)
        states = hx if isinstance(hx, (tuple, list)) else (hx,)
        if len(states) != len(names) or isinstance(hx, (tuple, list)) != (len(names) > 1):
            expected = "a tuple (h_0, c_0)" if len(names) > 1 else "one tensor h_0"
            got = f"a tuple of {len(states)}" if isinstance(hx, (tuple, list)) else f"a {type(hx).__name__}"
            raise UserError(f"The initial state of {type(self).__name__} is {got}.", f"Expected {expected}.")
        check_hidden(states, sizes, runs, x, unbatched)
        return tuple(state.unsqueeze(1) if unbatched else state for state in states)

    def initial_state(self, batch_size: int) -> State:
        """The state before the first step: zeros, or the learned state; (L·directions, B, size) each."""
        like, runs = self._weight(), len(self._run_names())
        learned = self._learned_states(batch_size)
        return learned or tuple(like.new_zeros(runs, batch_size, size) for size in self._state_sizes())

    def _learned_states(self, batch: int) -> State | None:
        if not self.learned_state:
            return None
        learned = [getattr(self, f"initial_{name}") for name in self.cell_class.state_names]
        return tuple(p.unsqueeze(1).expand(-1, batch, -1) for p in learned)

    def _runs(self, call: _Call) -> list[list[DirectionRun]]:
        """The directions of every layer with cell, state and, in training, freshly sampled masks."""
        batch, kinds, sizes = call.x.shape[0], self._kinds(), self._state_sizes()
        learned = self._learned_states(batch)
        drop_input, drop_hidden = self.variational_dropout if self.training else (0.0, 0.0)
        runs = []
        for index, name in enumerate(self._run_names()):
            parameters = {f"{kind}_{name}": getattr(self, f"{kind}_{name}") for kind in kinds}
            width = parameters[f"weight_ih_{name}"].shape[1]
            hidden_mask = variational_mask(drop_hidden, call.x, batch, sizes[0])
            cell_of = self._cell_builder(name, hidden_mask, self._drawn_dropconnect(name))
            runs.append(
                DirectionRun(
                    name=name,
                    cell=cell_of(parameters),
                    cell_of=cell_of,
                    parameters=parameters,
                    state=tuple(states[index] for states in call.states),
                    reverse=name.endswith("_reverse"),
                    fresh=call.fresh,
                    reset_state=tuple(s[index] for s in learned) if learned else None,
                    keep=zoneout_keep(self.zoneout, sizes, call.x, self.training),
                    input_mask=variational_mask(drop_input, call.x, batch, 1, width),
                )
            )
        directions = 2 if self.bidirectional else 1
        return [runs[i : i + directions] for i in range(0, len(runs), directions)]

    def _drawn_dropconnect(self, name: str) -> Tensor | None:
        if not self.training or self.dropconnect == 0:
            return None
        weight = getattr(self, f"weight_hh_{name}")
        return variational_mask(self.dropconnect, weight, *weight.shape)

    def _cell_builder(self, name: str, hidden_mask: Tensor | None, dropconnect: Tensor | None) -> CellOf:
        kinds = self._kinds()

        def cell_of(parameters: Mapping[str, Tensor]) -> AnyCell:
            fields: dict[str, Any] = {kind: parameters[f"{kind}_{name}"] for kind in kinds}
            if dropconnect is not None:
                fields["weight_hh"] = fields["weight_hh"] * dropconnect
            return self.cell_class(**fields, hidden_mask=hidden_mask, **self._cell_options())

        return cell_of

    def single_cell(self, batch: int) -> RNNCell | LSTMCell | GRUCell:
        """The first layer's cell, in training with freshly sampled masks, for a custom loop over its steps."""
        hidden = self.variational_dropout[1] if self.training else 0.0
        hidden_mask = variational_mask(hidden, self._weight(), batch, self._state_sizes()[0])
        cell = self._cell_builder("l0", hidden_mask, self._drawn_dropconnect("l0"))(
            {f"{kind}_l0": getattr(self, f"{kind}_l0") for kind in self._kinds()}
        )
        assert isinstance(cell, self.cell_class)
        return cell

    def _stack(
        self,
        layers: list[list[DirectionRun]],
        call: _Call,
        backend: str,
        first: tuple[ScanJob, str],
        traced: bool = False,
    ) -> Stacked:
        dropout = self.dropout if self.training else 0.0
        return run_stack(layers, call.x, call.lengths, call.resets, dropout, backend, first=first, traced=traced)

    def _close(self, call: _Call, stacked: Stacked) -> Any:
        """Output and final state in torch's layout."""
        output = combine(stacked.outputs, self.combine, getattr(self, "combine_weight", None))
        states = zip(*stacked.states.values(), strict=True)
        # on a GPU a copy is a launch; on a CPU it avoids fragmenting the memory that the engine frees
        as_it_is = len(stacked.states) == 1 and output.device.type == "cuda"
        final = tuple(p[0][None] if as_it_is else torch.stack(p) for p in states)
        return self._laid_out(call, output), self._state_laid_out(call, final)

    def _laid_out(self, call: _Call, output: Tensor) -> Tensor | PackedSequence:
        if call.packed is not None:
            return _pack_like(call.packed, output, call.lengths)
        if call.unbatched:
            return output.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1)

    def _state_laid_out(self, call: _Call, final: State) -> Tensor | State:
        final = tuple(s.squeeze(1) for s in final) if call.unbatched else final
        return final if len(final) > 1 else final[0]

    @property
    def _torch_can_run_all(self) -> bool:
        """True if torch.nn's own layers, one after another, compute what this layer does."""
        masked = self.training and (self.dropconnect or any(self.variational_dropout))
        return self.combine == "last" and not masked

    def torch_forward(self, input: Any, hx: Any = None) -> Any:
        """torch.nn's own `forward`, whatever the engine."""
        return super().forward(input, hx)

    def _torch_forward(self, call: _Call) -> Any:
        states = tuple(state.contiguous() for state in call.states)  # cuDNN's; a learned state is one row, expanded
        hidden = states if len(states) > 1 else states[0]
        if call.packed is not None:
            return super().forward(call.packed, hidden)
        if call.lengths is None:
            x = call.x if self.batch_first else call.x.transpose(0, 1)
            output, final = super().forward(x, hidden)
            output = output if self.batch_first else output.transpose(0, 1)
            final = final if isinstance(final, tuple) else (final,)
            return self._laid_out(call, output), self._state_laid_out(call, final)
        # torch rejects empty sequences: they run one step on zeros, and its result is discarded
        real = (call.lengths > 0)[:, None]  # (B, 1)
        x = torch.where(real[..., None], call.x, 0)
        packed = pack_padded_sequence(x, call.lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        output, final = super().forward(packed, hidden)
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=call.x.shape[1])
        final = final if isinstance(final, tuple) else (final,)
        output = torch.where(real[..., None], output, 0)
        final = tuple(torch.where(real, new, old) for new, old in zip(final, call.states, strict=True))
        return self._laid_out(call, output), self._state_laid_out(call, final)


def _pack_like(packed: PackedSequence, output: Tensor, lengths: Tensor | None) -> PackedSequence:
    """Pack a padded output (B, T, O) like the input."""
    assert lengths is not None
    lengths = lengths.cpu()
    if packed.sorted_indices is not None:
        output = output.index_select(0, packed.sorted_indices)
        lengths = lengths.index_select(0, packed.sorted_indices.cpu())
    data = pack_padded_sequence(output, lengths, batch_first=True).data
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


let_compiler_trace(DropIn)
