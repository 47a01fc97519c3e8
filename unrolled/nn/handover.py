"""Calls that torch.nn's own layer runs: recorded calls, scripted and quantised models, tensor subclasses."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from unrolled.errors import UserError, note
from unrolled.kernels.recurrence import torch_engine

if TYPE_CHECKING:
    from unrolled.nn.dropin import DropIn

_PLAIN = (Tensor, nn.Parameter)
_TORCHS = (nn.LSTM, nn.GRU, nn.RNN)
_WITHOUT_EFFECT = ("init", "backend")  # on the results of an existing layer
_OF_TRAINING = ("variational_dropout", "dropconnect")


def unusual(input: object, weight: Tensor | None) -> bool:
    """True if a call is being recorded, or has tensors whose class overrides torch's functions.

    `weight` is one of the layer's parameters; None if it is parametrized.
    """
    if torch.compiler.is_compiling():  # the compiler traces our engines
        return False
    if type(input) is not Tensor and not isinstance(input, PackedSequence) and _overrides(input):
        return True
    return (type(weight) not in _PLAIN and weight is not None and _overrides(weight)) or torch._C._is_tracing()


def _overrides(value: object) -> bool:
    """True if a value's class overrides torch's functions, or it is not a tensor."""
    if type(value) in _PLAIN:
        return False
    own = getattr(type(value), "__torch_function__", None)
    return own is not torch._C._disabled_torch_function_impl


def handed_over(
    layer: DropIn,
    input: Any,
    hx: Any,
    lengths: Tensor | Iterable[int] | None,
    resets: Tensor | None,
) -> Any:
    """The result of torch.nn's own layer for an unusual call; None if it cannot run it."""
    if isinstance(input, torch.fx.Proxy):  # symbolic tracing: one node, as for torch.nn's layers
        options = {"lengths": lengths, "resets": resets}
        kwargs = {name: value for name, value in options.items() if value is not None}
        tracer: Any = input.tracer
        return tracer.create_proxy("call_module", tracer.path_of_module(layer), (input, hx), kwargs)
    if not hasattr(type(input), "__torch_function__") and not isinstance(input, PackedSequence):
        return None  # not a tensor
    missing = beyond_torch(layer)
    per_sample = type(layer._weight()).__name__ == "ExpandedWeight"
    if not missing and lengths is None and resets is None and layer.backend in ("auto", "torch"):
        with torch_engine.without_onednn() if per_sample else nullcontext():  # oneDNN has no per-sample gradients
            return layer.torch_forward(input, hx)
    if per_sample:
        why = f"torch.nn has no {', '.join(missing)}" if missing else "lengths, resets or an engine by name was given"
        raise UserError(
            f"torch's per-sample gradients support only torch.nn's own {layer.mode}: {why}.",
            "Use torch.func: vmap(grad(loss), (None, 0)) with functional_call.",
        )
    return None


def beyond_torch(layer: DropIn) -> list[str]:
    """The options in use that torch.nn's layer does not have."""
    passed = (*_WITHOUT_EFFECT, *(() if layer.training else _OF_TRAINING))
    names = [name for name in layer._options if name not in passed]
    if layer.mode.startswith("RNN") and layer.nonlinearity not in ("tanh", "relu"):
        names.append("nonlinearity")
    return names


def as_torch(layer: DropIn) -> nn.RNNBase:
    """torch.nn's layer with the same options, sharing the parameters."""
    kind: Any = next(base for base in _TORCHS if isinstance(layer, base))
    missing = beyond_torch(layer)
    if missing:
        raise UserError(
            f"torch.nn.{kind.__name__} has no {', '.join(missing)}: this layer cannot become one.",
            "Use torch.export or torch.jit.trace, which record what the layer computes.",
        )
    options: dict[str, Any] = {"proj_size": layer.proj_size} if layer.mode == "LSTM" else {}
    if layer.mode.startswith("RNN"):
        options["nonlinearity"] = layer.nonlinearity
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    with warnings.catch_warnings():  # about dropout without effect: reported for this layer already
        warnings.simplefilter("ignore")
        made: nn.RNNBase = kind(**{name: getattr(layer, name) for name in names}, **options, device="meta")
    for name in made._flat_weights_names:
        value = getattr(layer, name)
        setattr(made, name, value if isinstance(value, nn.Parameter) else nn.Parameter(value.detach()))
    made._init_flat_weights()
    return made.train(layer.training)


def to_torch(model: nn.Module) -> nn.Module:
    """A copy of a model in which every RNN, LSTM and GRU of ours is torch.nn's own, with the same weights.

    For tools that support only torch.nn's classes: torch's quantisation, TorchScript. Options that torch.nn lacks raise
    an error, except, in evaluation mode, those of training.

    >>> import unrolled
    >>> to_torch(torch.nn.Sequential(unrolled.LSTM(3, 4), torch.nn.Flatten()).eval())
    Sequential(
      (0): LSTM(3, 4)
      (1): Flatten(start_dim=1, end_dim=-1)
    )
    """
    from unrolled.nn.dropin import DropIn

    model = copy.deepcopy(model)
    if isinstance(model, DropIn):
        return as_torch(model)
    made: dict[DropIn, nn.RNNBase] = {}  # a shared layer stays shared
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if isinstance(child, DropIn):
                made[child] = made.get(child) or as_torch(child)
                setattr(module, name, made[child])
    return model


class Scriptable:
    """The attributes that torch's scripting and quantisation read on a drop-in."""

    def __prepare_scriptable__(self: DropIn) -> nn.RNNBase:  # type: ignore[misc]
        """The layer that torch.jit.script puts in our place, also in the original model."""
        made = as_torch(self)
        note(
            f"torch.jit.script compiles torch.nn.{type(made).__name__}, and leaves it in the model in place of "
            f"unrolled.{type(self).__name__}. To keep yours, script a copy: "
            "torch.jit.script(unrolled.nn.to_torch(model))."
        )
        return made

    @property
    def qconfig(self) -> Any:
        """The attribute that torch's quantisation sets on every module of a model."""
        try:
            return self.__dict__["_qconfig"]
        except KeyError:
            raise AttributeError("qconfig") from None

    @qconfig.setter
    def qconfig(self, value: object) -> None:
        if getattr(self, "mode", "") in ("LSTM", "GRU"):  # torch does not quantise an RNN either
            kind = type(self).__name__
            note(
                f"torch's quantisation knows torch.nn.{kind} by its exact class: unrolled.{kind} stays in floating "
                "point. Quantise unrolled.nn.to_torch(model) instead, or stream with layer.stepper(weights='int8')."
            )
        self.__dict__["_qconfig"] = value

    @qconfig.deleter
    def qconfig(self) -> None:
        self.__dict__.pop("_qconfig", None)
