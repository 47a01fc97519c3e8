"""PyTorch's own tests of RNN, LSTM, GRU and the CTC loss, with our classes in place of torch.nn's.

    python -m tests.conformance.pytorch_suite                        what ships with torch: its database of modules
    python -m tests.conformance.pytorch_suite --pytorch ~/pytorch    its test files, from a checkout of the same version

A wheel of torch has no test files: `git clone --depth 1 --branch v2.13.0 https://github.com/pytorch/pytorch` has them,
and needs `pip install pytest expecttest hypothesis` beside it. Each file runs twice, with torch.nn's own classes and
with ours. A test counts if torch.nn's classes pass it. What ours are known to do otherwise stands in `DIFFERENCES`;
anything else that fails is an error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import unrolled

NAMES = ("RNN", "LSTM", "GRU")
RNNS = "RNN or rnn or LSTM or lstm or GRU or gru"

# file below test/ → which of its tests (pytest's -k)
FILES: dict[str, str] = {
    "test_nn.py": f"{RNNS} or projections or ctc or CTC or cudnn_forward_exception",
    "test_modules.py": "nn_RNN_ or nn_LSTM_ or nn_GRU_",
    "nn/test_packed_sequence.py": "test",
    "nn/test_pruning.py": RNNS,
    "nn/test_multihead_attention.py": RNNS,
    "test_autocast.py": "rnn",
    "test_overrides.py": "TestRNN",
    "test_expanded_weights.py": RNNS,
    "test_jit.py": RNNS,
    "test_fx.py": RNNS,
    "test_serialization.py": RNNS,
    "test_multiprocessing.py": RNNS,
    "test_mkldnn.py": RNNS,
    "export/test_export.py": "rnn or lstm or gru",
    "functorch/test_aotdispatch.py": "nn_RNN_ or nn_LSTM_ or nn_GRU_",
    "quantization/eager/test_quantize_eager_ptq.py": RNNS,
    "quantization/fx/test_quantize_fx.py": RNNS,
    "quantization/core/test_quantized_module.py": RNNS,
}

# a pattern of "file::test" → why ours does otherwise
DIFFERENCES: dict[str, str] = {
    r"test_jit\.py::.*(nn_GRU|nn_LSTM|script_.*rnn)": (
        "a class derived from torch.jit.ScriptModule compiles the source of its parts as it stands: "
        "torch.jit.script(unrolled.nn.to_torch(model)) works"
    ),
    r"quantization/.*": (
        "torch's quantisation knows modules by their exact class: ours stay in floating point, and say so; "
        "unrolled.nn.to_torch(model) is quantised"
    ),
}


def replace_classes() -> None:
    """Puts our classes where tests find torch.nn's."""
    from torch.nn import functional

    for name in NAMES:
        ours = getattr(unrolled, name)
        for module in (nn, nn.modules, nn.modules.rnn):
            setattr(module, name, ours)
    functional.ctc_loss = _ctc_loss


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Ours in torch's layout, time first."""
    if log_probs.dim() == 3:
        log_probs = log_probs.transpose(0, 1)
    given = (targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    return unrolled.nn.ctc_loss(log_probs, *given)


def modules() -> dict[str, Any]:
    """torch's database of modules, by name: inputs, references and mistakes for RNN, LSTM, GRU and CTCLoss."""
    try:
        importlib.import_module("expecttest")
    except ModuleNotFoundError:  # torch's helpers derive a class from its TestCase, which is unittest's and more
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    common = importlib.import_module("torch.testing._internal.common_modules")
    wanted = [f"nn.{name}" for name in (*NAMES, "CTCLoss")]
    return {info.name: (info, common) for info in common.module_db if info.name in wanted}


def flat(value: Any) -> list[torch.Tensor]:
    """All tensors in nested tuples."""
    return [value] if isinstance(value, torch.Tensor) else [t for part in value for t in flat(part)]


def check_forward(name: str, info: Any, dtype: torch.dtype, training: bool) -> None:
    """Output, state and all gradients: torch's reference and torch.nn's class are met."""
    for given in samples(info, dtype, training, requires_grad=True):
        ours = getattr(unrolled, name)(*given.constructor_input.args, **given.constructor_input.kwargs, dtype=dtype)
        theirs = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs, dtype=dtype)
        ours.load_state_dict(theirs.state_dict())
        arguments = given.forward_input.args
        found, wanted = (flat(layer.train(training)(*arguments)) for layer in (ours, theirs))
        reference = flat(given.reference_fn(ours, *arguments))
        for mine, other, referred in zip(found, wanted, reference, strict=True):
            torch.testing.assert_close(mine, other)
            torch.testing.assert_close(mine, referred)
        leaves = flat(arguments)
        for layer, numbers in ((ours, found), (theirs, wanted)):
            layer.found = torch.autograd.grad([n.sum() for n in numbers], [*leaves, *layer.parameters()])
        for mine, other in zip(ours.found, theirs.found, strict=True):
            torch.testing.assert_close(mine, other)


def check_errors(name: str, info: Any, dtype: torch.dtype, training: bool) -> None:
    """Every mistake in the database raises the exception it names, with its text."""
    common = modules()[f"nn.{name}"][1]
    mistakes = info.module_error_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
    assert mistakes
    for mistake in mistakes:
        given = mistake.module_error_input

        raised: Exception | None = None
        try:
            made = getattr(unrolled, name)(*given.constructor_input.args, **given.constructor_input.kwargs)
            if mistake.error_on == common.ModuleErrorEnum.FORWARD_ERROR:
                made(*given.forward_input.args, **given.forward_input.kwargs)
        except Exception as error:
            raised = error
        assert isinstance(raised, mistake.error_type), f"{raised!r} is no {mistake.error_type.__name__}"
        assert re.search(mistake.error_regex, str(raised)), f"{raised} is not {mistake.error_regex}"


def check_derivatives(name: str, info: Any, dtype: torch.dtype, training: bool) -> None:
    """First and second derivatives against differences, as torch's gradcheck makes them, on some of the inputs."""
    for given in list(samples(info, torch.float64, training, requires_grad=True))[::9]:
        ours = getattr(unrolled, name)(
            *given.constructor_input.args, **given.constructor_input.kwargs, dtype=torch.float64
        ).train(training)
        names = [key for key, _ in ours.named_parameters()]
        arguments = given.forward_input.args
        leaves = flat(arguments)

        def run(*values: torch.Tensor, ours: Any = ours, names: Any = names, count: int = len(leaves)) -> Any:
            tensors = values[:count]
            hx = () if count == 1 else (tensors[1:],) if count > 2 else tensors[1:]
            parameters = dict(zip(names, values[count:], strict=True))
            return tuple(flat(torch.func.functional_call(ours, parameters, (tensors[0], *hx))))

        values = (*leaves, *ours.parameters())
        assert torch.autograd.gradcheck(run, values, fast_mode=True)
        assert torch.autograd.gradgradcheck(run, values, fast_mode=True)


def check_module(name: str, info: Any, dtype: torch.dtype, training: bool) -> None:
    """Check the duties of any module: factory arguments, copies, state dicts, inputs that are not contiguous."""
    import copy

    for given in list(samples(info, dtype, training, requires_grad=False))[::3]:
        make = given.constructor_input
        layer = getattr(unrolled, name)(*make.args, **make.kwargs, dtype=dtype, device="cpu").train(training)
        assert all(p.dtype == dtype for p in layer.parameters())
        repr(layer)
        arguments = given.forward_input.args
        expected = flat(layer(*arguments))
        meta = getattr(unrolled, name)(*make.args, **make.kwargs, dtype=dtype, device="meta")
        other = meta.to_empty(device="cpu").train(training)
        other.load_state_dict(layer.state_dict())
        strided = [spread(t) for t in arguments]
        for found in (copy.deepcopy(layer)(*arguments), other(*arguments), layer(*strided)):
            for mine, wanted in zip(flat(found), expected, strict=True):
                torch.testing.assert_close(mine, wanted)


def spread(value: Any) -> Any:
    """The same numbers, not contiguous."""
    if isinstance(value, tuple):
        return tuple(map(spread, value))
    return torch.stack([value, value], dim=-1)[..., 0]


def check_ctc(name: str, info: Any, dtype: torch.dtype, training: bool) -> None:
    """The database's inputs of CTCLoss: torch's own function, and its reference, give what ours gives."""
    for given in samples(info, dtype, training, requires_grad=False):
        make, (log_probs, targets, *rest) = given.constructor_input, given.forward_input.args
        if targets.is_floating_point():
            continue
        log_probs = log_probs.log_softmax(-1)
        settings = {"blank": 0, "reduction": "mean", "zero_infinity": False, **make.kwargs}
        wanted = info.module_cls(**settings)(log_probs, targets, *rest)
        torch.testing.assert_close(_ctc_loss(log_probs, targets, *rest, **settings), wanted)


def samples(info: Any, dtype: torch.dtype, training: bool, requires_grad: bool) -> Iterator[Any]:
    found = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=requires_grad, training=training)
    assert found
    yield from found


CHECKS: dict[str, Callable[[str, Any, torch.dtype, bool], None]] = {
    "forward": check_forward,
    "errors": check_errors,
    "derivatives": check_derivatives,
    "module": check_module,
}


def run_installed() -> dict[str, str]:
    """Every check of every module: its name → "passed", or what went wrong."""
    outcomes: dict[str, str] = {}
    found = modules()
    for name, (info, _) in found.items():
        short = name.removeprefix("nn.")
        checks = {"ctc": check_ctc} if short == "CTCLoss" else CHECKS
        for check, act in checks.items():
            for dtype in (torch.float32, torch.float64):
                for training in (True, False):
                    key = f"{short} {check} {str(dtype).removeprefix('torch.')} {'train' if training else 'eval'}"
                    if check == "derivatives" and (dtype != torch.float64 or not training):
                        continue
                    try:
                        act(short, info, dtype, training)
                        outcomes[key] = "passed"
                    except Exception as error:  # a table of all is wanted, whatever one does
                        outcomes[key] = f"{type(error).__name__}: {error}"
    return outcomes


class Recorder:
    """A plugin of pytest's that keeps each test's outcome."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid.split("/")[-1].split("::", 1)[-1]] = report.outcome


def run_file(path: str, chosen: str, results: str, ours: bool) -> None:
    """Runs one of PyTorch's files in this process, and writes the outcomes."""
    import pytest

    if ours:
        replace_classes()
    recorder = Recorder()
    options = ["--noconftest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-k", chosen]
    pytest.main([path, *options], plugins=[recorder])
    Path(results).write_text(json.dumps(recorder.outcomes), encoding="utf-8")


def outcomes_of(root: Path, file: str, chosen: str, ours: bool) -> dict[str, str]:
    """The same in a process of its own, since PyTorch's helpers change global settings."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--file", str(root / "test" / file)]
        command += ["--chosen", chosen, "--results", str(results), *(["--ours"] if ours else [])]
        here = str(Path(__file__).parents[2])
        paths = [here, str(root / "test"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        subprocess.run(command, env=environment, check=False, cwd=folder, stdout=subprocess.DEVNULL)
        outcomes: dict[str, str] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    return outcomes


def judge(theirs: dict[str, str], ours: dict[str, str], file: str) -> tuple[list[str], list[str], list[str]]:
    """Tests that count, those of them that ours fails without a reason, and those with one: "file::test"."""
    counted = [f"{file}::{test}" for test, outcome in theirs.items() if outcome == "passed"]
    failed = [test for test in counted if ours.get(test.split("::", 1)[1]) != "passed"]
    known = [test for test in failed if reason_for(test) is not None]
    return counted, [test for test in failed if test not in known], known


def reason_for(test: str) -> str | None:
    return next((reason for pattern, reason in DIFFERENCES.items() if re.match(pattern, test)), None)


def run_sources(root: Path, files: dict[str, str]) -> int:
    """Runs all files there are and prints a table; how many tests failed without a reason."""
    unexpected = 0
    for file, chosen in files.items():
        if not (root / "test" / file).exists():
            print(f"{file}: not in this checkout")
            continue
        theirs, ours = (outcomes_of(root, file, chosen, ours) for ours in (False, True))
        counted, failed, known = judge(theirs, ours, file)
        print(f"{file}: {len(counted) - len(failed) - len(known)} of {len(counted)}")
        for test in known:
            print(f"  known: {test}: {reason_for(test)}")
        for test in failed:
            print(f"  FAILED: {test}")
        unexpected += len(failed)
    return unexpected


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pytorch", type=Path, help="a checkout of PyTorch, of the version that is installed")
    parser.add_argument("--json", action="store_true", help="without --pytorch: the outcomes as JSON")
    for hidden in ("--file", "--chosen", "--results"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.file:
        run_file(given.file, given.chosen, given.results, given.ours)
        return 0
    if given.pytorch:
        if not (given.pytorch / "test").is_dir():
            parser.error(f"{given.pytorch} has no folder test: give a checkout of PyTorch's sources.")
        return 1 if run_sources(given.pytorch, FILES) else 0
    outcomes = run_installed()
    if given.json:
        print(json.dumps(outcomes))
    else:
        for name, outcome in outcomes.items():
            print(f"{name}: {outcome}")
        print("PyTorch's test files are not here: --pytorch says where. See --help.")
    return 0 if set(outcomes.values()) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main())
