"""A C++ kernel as a pair of torch operators, forward and backward, whose arguments have names.

torch's operators and autograd functions take flat lists. The inputs and results of a kernel are two NamedTuples; only
this file turns them into schemas, flat lists, saved tensors and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_type_hints

import torch
from torch import Tensor

from unrolled.errors import UserError
from unrolled.kernels.native_buffers import Allocate, Lease, empty

I = TypeVar("I", bound=tuple[Any, ...])  # noqa: E741
R = TypeVar("R", bound=tuple[Any, ...])

_TYPES = {Tensor: "Tensor", Tensor | None: "Tensor?", int: "int", float: "float", bool: "bool"}


@dataclass(frozen=True)
class Kernel(Generic[I, R]):
    """The functions of a C++ kernel, by the names of its inputs and results."""

    name: str
    title: str  # in messages
    inputs: Callable[..., I]  # a NamedTuple, tensors first, and of these the differentiable ones
    results: Callable[..., R]  # a NamedTuple of tensors; the last, `saved`, is for the backward pass
    differentiable: str  # the last input that has a gradient
    forward: Callable[[I, Allocate | None], R]  # makes `saved` with the second argument; None: nothing is saved
    backward: Callable[[I, R, R, Sequence[bool]], dict[str, Tensor]]
    """inputs, kept results, gradients of the results, inputs that need a gradient → gradients by the inputs' names"""
    fake: Callable[[I, bool], R]  # results without numbers, for tracing; with `saved` or without
    fake_gradient: Callable[[I, str], Tensor]  # the same for the gradient of one input
    reads: tuple[str, ...] = ()  # results that the backward pass reads, beside `saved`
    reference: Callable[[I], Sequence[Tensor] | None] | None = None
    """The results in plain torch, for a backward pass that is itself differentiated; None: it cannot be."""
    check: Callable[[I], None] | None = None  # of values, which a call could not read while it was traced


class NativeOperator(Generic[I, R]):
    """`torch.ops.unrolled.<name>` and `<name>_backward`; a call takes the fastest path to the kernel."""

    def __init__(self, kernel: Kernel[I, R]) -> None:
        self.kernel = kernel
        kinds = get_type_hints(kernel.inputs)
        self._names = list(kinds)
        self._tensors = sum(_TYPES[kind].startswith("Tensor") for kind in kinds.values())
        self._differentiable = self._names.index(kernel.differentiable) + 1
        self._results = list(get_type_hints(kernel.results))
        self._kept = [name in (*kernel.reads, "saved") for name in self._results]
        inputs = ", ".join(f"{_TYPES[kind]} {name}" for name, kind in kinds.items())
        gradients = "".join(f"Tensor? d_{name}, " for name in self._results)
        kept = "".join(f"Tensor? {name}, " for name in self._results)
        self.forward = torch.library.custom_op(
            f"unrolled::{kernel.name}",
            self._run_forward,
            mutates_args=(),
            schema=f"({inputs}, bool save) -> ({', '.join(['Tensor'] * len(self._results))})",
        )
        self.backward = torch.library.custom_op(
            f"unrolled::{kernel.name}_backward",
            self._run_backward,
            mutates_args=(),
            schema=f"({gradients}{kept}{inputs}, bool[] needed) -> Tensor[]",
        )
        self.forward.register_fake(lambda *flat: tuple(kernel.fake(self._inputs(flat[:-1]), flat[-1])))
        self.backward.register_fake(self._fake_backward)
        self.forward.register_autograd(self._differentiate, setup_context=self._set_up)
        self.backward.register_autograd(no_second_derivative(kernel.title))

    def __call__(self, inputs: I, *, show_saved: bool = False) -> R:
        """The results; with `show_saved`, `saved` among them."""
        if transformed() and not torch.compiler.is_compiling():
            return self._transformed(inputs)
        save = show_saved or self.needs_graph(inputs)
        if torch.compiler.is_compiling() or type(inputs[0]) not in (Tensor, torch.nn.Parameter):
            return self.kernel.results(*self.forward(*inputs, save))
        if save:
            return self.kernel.results(*_Eager.apply(self, show_saved, *inputs))  # type: ignore[no-untyped-call]
        return self.kernel.forward(inputs, None)

    def _transformed(self, inputs: I) -> R:
        """The results inside a torch.func transform, by `reference`."""
        found = None if self.kernel.reference is None else self.kernel.reference(inputs)
        if found is None:
            raise UserError(f"{self.kernel.title} has no torch.func transforms.", "Use backend='reference'.")
        return self.kernel.results(*found, inputs[0].new_empty(0))

    def needs_graph(self, inputs: I) -> bool:
        """True if an input needs a gradient."""
        if not torch.is_grad_enabled():
            return False
        return any(tensor is not None and tensor.requires_grad for tensor in inputs[: self._differentiable])

    def _inputs(self, flat: Sequence[Any]) -> I:
        return self.kernel.inputs(*flat)

    def _run_forward(self, *flat: Any) -> tuple[Tensor, ...]:
        inputs = self._inputs(flat[:-1])
        if self.kernel.check is not None:
            self.kernel.check(inputs)
        return tuple(self.kernel.forward(inputs, empty if flat[-1] else None))

    def _set_up(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[-1])
        kept = [result if kept else None for result, kept in zip(output, self._kept, strict=True)]
        ctx.save_for_backward(*kept, *inputs[: self._tensors])
        ctx.options = inputs[self._tensors : len(self._names)]

    def _recall(self, ctx: Any) -> tuple[I, R]:
        """The inputs and kept results of a call."""
        count = len(self._results)
        tensors = ctx.saved_tensors
        return self._inputs((*tensors[count:], *ctx.options)), self.kernel.results(*tensors[:count])

    def _differentiate(self, ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs, kept = self._recall(ctx)
        needed = list(ctx.needs_input_grad[: self._differentiable])
        return *self._all_inputs(self._found(inputs, kept, gradients, needed), needed), None

    def _found(
        self, inputs: I, kept: R, gradients: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> Sequence[Tensor | None]:
        """The gradients of differentiable inputs, by `reference` if they may be differentiated themselves."""
        found = self._differentiable_gradients(inputs, gradients, needed) if torch.is_grad_enabled() else None
        return self.backward(*gradients, *kept, *inputs, list(needed)) if found is None else found

    def differentiate_eagerly(self, ctx: Any, gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """The gradients of all inputs of a call of `_Eager`."""
        inputs, kept = self._recall(ctx)
        kept = self.kernel.results(*kept[:-1], ctx.saved)
        needed = ctx.needs_input_grad[2 : 2 + self._differentiable]
        if torch.is_grad_enabled():  # create_graph=True
            return self._all_inputs(self._found(inputs, kept, gradients, needed), needed)
        by_name = self.kernel.backward(inputs, kept, self.kernel.results(*gradients), needed)
        return self._all_inputs([by_name.get(name) for name in self._names[: self._differentiable]], needed)

    def _all_inputs(self, found: Sequence[Tensor | None], needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
        others = (None,) * (len(self._names) - self._differentiable)
        return *(gradient if need else None for gradient, need in zip(found, needed, strict=True)), *others

    def _run_backward(self, *flat: Any) -> list[Tensor]:
        gradients, kept, inputs, needed = self._unpack_backward(flat)
        found = self.kernel.backward(inputs, kept, gradients, needed)
        return [
            found[name] if need and tensor is not None else inputs[0].new_empty(0)
            for name, tensor, need in zip(self._names, inputs, needed, strict=False)
        ]

    def _fake_backward(self, *flat: Any) -> list[Tensor]:
        _, _, inputs, needed = self._unpack_backward(flat)
        return [
            inputs[0].new_empty(0) if tensor is None or not need else self.kernel.fake_gradient(inputs, name)
            for name, tensor, need in zip(self._names, inputs, needed, strict=False)
        ]

    def _unpack_backward(self, flat: tuple[Any, ...]) -> tuple[R, R, I, list[bool]]:
        count, results = len(self._results), self.kernel.results
        return results(*flat[:count]), results(*flat[count : 2 * count]), self._inputs(flat[2 * count : -1]), flat[-1]

    def _differentiable_gradients(
        self, inputs: I, d_results: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> list[Tensor | None] | None:
        """Differentiable gradients, computed by `reference`; None without a reference."""
        reference, others = self.kernel.reference, inputs[self._differentiable :]
        if reference is None:
            return None
        return gradients_by(lambda *given: reference(self._inputs((*given, *others))), inputs, d_results, needed)


def transformed() -> bool:
    """True inside a torch.func transform or forward-mode differentiation."""
    functorch = torch._C._functorch.peek_interpreter_stack() is not None
    return functorch or torch.autograd.forward_ad._current_level >= 0


def gradients_by(
    run: Callable[..., Sequence[Tensor] | None],
    inputs: Sequence[Tensor | None],
    d_results: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None] | None:
    """Gradients that can be differentiated again, of those of the first `inputs` that are `needed`.

    `run` computes the results in plain torch, or returns None where it cannot.
    """
    # one input may depend on another: an alias gets only its own direct gradient
    aliases = [t.view_as(t) if n and t is not None else t for t, n in zip(inputs, needed, strict=False)]
    results = run(*aliases)
    if results is None:
        return None
    pairs = [(r, d) for r, d in zip(results, d_results, strict=False) if d is not None and r.requires_grad]
    wanted = [alias for alias, need in zip(aliases, needed, strict=True) if need and alias is not None]
    found: Iterator[Tensor | None] = iter([None] * len(wanted))
    if pairs:
        outputs, d_outputs = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, wanted, d_outputs, create_graph=True, allow_unused=True))
    return [next(found) if n and a is not None else None for a, n in zip(aliases, needed, strict=True)]


class _Eager(torch.autograd.Function):
    """The operator without the dispatcher, which costs more than a short recurrence, and with a pooled buffer."""

    @staticmethod
    def forward(ctx: Any, operator: NativeOperator[Any, Any], show_saved: bool, *inputs: Any) -> tuple[Tensor, ...]:
        ctx.lease = Lease()
        *results, ctx.saved = operator.kernel.forward(
            operator._inputs(inputs), empty if show_saved else ctx.lease.allocate
        )
        output = *results, ctx.saved if show_saved else empty(0)
        operator._set_up(ctx, inputs, output)
        ctx.operator = operator
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.operator.differentiate_eagerly(ctx, gradients)


def no_second_derivative(title: str) -> Callable[..., None]:
    """Raise the error of a backward pass that is differentiated."""

    def refuse(ctx: Any, *gradients: object) -> None:
        raise UserError(
            f"{title} has no second derivative.", "Use backend='reference', which has derivatives of any order."
        )

    return refuse
