"""Runs the kernels of a wheel's extension without torch, and compares them with the equations in numpy, in float64.

Usage: python packaging/check_kernels.py WHEEL; it needs numpy, pillow and pydantic. UNROLLED_ISA chooses the
instruction set.

Under an emulator torch takes minutes to import; this takes seconds. It covers every recurrent cell forward, backward
(against differences of the equations) and step by step with every format of weights, decoders with attention, products
and attention whose rows are apart, the CTC loss with its gradient and alignment, the best scores of a vocabulary and
the cross-entropy, searches, n-gram models and changed pictures. Gradients are compared along one random direction of
each tensor. A name of the extension that nothing here checks is an error.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import platform
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from check_rows import check_decoders, check_narrow, check_rows_apart
from check_search import (
    check_alignment,
    check_dictionary_search,
    check_hotwords,
    check_lines,
    check_ngrams,
    check_prefix_search,
)
from check_wheel import extension_in
from comparing import FLOAT32, GRADIENT, Array, Checks, cell_step, exact, floats

# What the checks cover, by the extension's names.
CHECKED = {
    "CELLS", "ScanJob", "sort_by_length", "Stepper", "Stream", "connect", "AttentionJob", "ApartProductJob",
    "ApartAttentionJob", "NarrowScoresJob", "narrow", "CtcJob", "ctc_align", "TopJob", "CrossEntropyJob",
    "Hotwords", "PrefixSearch", "NGramModel", "ArpaReader", "ArpaWriter", "KneserNey", "mix_ngrams", "Lexicon",
    "make_lexicon", "WordModel", "ngram_word_model", "uniform_word_model", "Dictionary", "make_dictionary",
    "DictionaryOptions", "DictionarySearch", "feed_all", "change_lines", "isa", "isas", "set_scratch_nan", "threading",
}  # fmt: skip


def load(wheel: Path) -> Any:
    """The extension inside a wheel."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as file:
        spec = importlib.util.spec_from_file_location("_native", file.extract(extension_in(file), folder))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def recurrence(kind: str, w: dict[str, Array], lengths: Array, reverse: bool) -> tuple[Array, Array, Array]:
    """The equations over time: outputs (B, T, H), zero in padding, and the last states."""
    x, h, c = w["x"], w["h_0"], w["c_0"]
    steps = x.shape[1]
    output = np.zeros((*x.shape[:2], h.shape[1]))
    for t in reversed(range(steps)) if reverse else range(steps):
        real = (t < lengths)[:, None]
        new_h, new_c = cell_step(kind, w, x[:, t], h, c, exact)
        h, c = np.where(real, new_h, h), np.where(real, new_c, c)
        output[:, t] = np.where(real, new_h, 0)
    return output, h, c


def weights_of(draw: np.random.Generator, gates: int, features: int, hidden: int) -> dict[str, Array]:
    scale = 0.7 / hidden**0.5
    return {
        "weight_ih": draw.normal(size=(gates * hidden, features)) * 0.4,
        "weight_hh": draw.normal(size=(gates * hidden, hidden)) * scale,
        "bias_ih": draw.normal(size=gates * hidden) * 0.3,
        "bias_hh": draw.normal(size=gates * hidden) * 0.3,
    }


class Recurrence:
    """A whole recurrence by the extension: its inputs, its buffers, and the job that holds their addresses."""

    def __init__(self, native: Any, kind: int, sizes: tuple[int, int, int], reverse: bool, ragged: bool) -> None:
        self.name, self.gates, self.memory, self.candidate, _ = native.CELLS[kind]
        self.batch, self.steps, self.hidden = sizes
        self.features, self.reverse = 5, reverse
        self.draw = np.random.default_rng([kind, *sizes, reverse, ragged])
        self.inputs = self.draw_inputs()
        self.given = {key: floats(value) for key, value in self.inputs.items()}
        self.lengths = self.draw.integers(0, self.steps + 1, self.batch) if ragged else np.full(self.batch, self.steps)
        self.order, self.active = np.zeros(self.batch, np.int64), np.zeros(self.steps, np.int64)
        self.job = native.ScanJob()
        self.job.kind, self.job.reverse, self.job.save = kind, reverse, True
        self.job.batch, self.job.steps, self.job.features = self.batch, self.steps, self.features
        self.job.hidden = self.job.width = self.hidden
        if ragged:
            self.lengths = self.lengths.astype(np.int64)
            where = [one.ctypes.data for one in (self.lengths, self.order, self.active)]
            native.sort_by_length(where[0], self.batch, self.steps, *where[1:])
            self.job.lengths, self.job.order, self.job.active = where

    def draw_inputs(self) -> dict[str, Array]:
        """Weights, x and the initial state: float32 numbers, in float64 for the equations."""
        w = weights_of(self.draw, self.gates, self.features, self.hidden)
        w["x"] = self.draw.normal(size=(self.batch, self.steps, self.features))
        w |= {key: self.draw.normal(size=(self.batch, self.hidden)) * 0.5 for key in ("h_0", "c_0")}
        return {key: floats(value).astype(np.float64) for key, value in w.items()}

    def unwritten(self, *shape: int) -> Array:
        return np.full(shape, np.nan, np.float32)

    def states(self, *names: str) -> dict[str, Array]:
        """A buffer for each state of the cell: h, and c where it has one."""
        kept = [name for name in names if self.memory or "c_" not in name]
        return {name: self.unwritten(self.batch, self.hidden) for name in kept}

    def place(self, buffers: dict[str, Array], prefix: str = "") -> None:
        """Gives the job the addresses of arrays, which must outlive its run."""
        for key, value in buffers.items():
            if key in ("x", "output"):
                getattr(self.job, f"set_{prefix}{key}")(value.ctypes.data, value[0].size, value.shape[2])
            else:
                setattr(self.job, prefix + key, value.ctypes.data)

    def forward(self) -> dict[str, Array]:
        """Output and final state. What the backward pass reads stays in `kept`."""
        rows = self.batch * self.steps
        self.kept = {"gates": self.unwritten(rows, self.gates * self.hidden)}
        sections = ["h_entering", *["c_entering"] * self.memory, *["candidate"] * self.candidate]
        self.kept |= {key: self.unwritten(rows, self.hidden) for key in sections}
        made = {"output": self.unwritten(self.batch, self.steps, self.hidden)} | self.states("h_n", "c_n")
        self.place({key: value for key, value in self.given.items() if self.memory or key != "c_0"} | self.kept | made)
        self.job.forward(2)
        return made

    def backward(self, d_output: Array, d_h_n: Array, d_c_n: Array) -> dict[str, Array]:
        """The gradient of every input, by its name."""
        given = {"output": floats(d_output), "h_n": floats(d_h_n)} | ({"c_n": floats(d_c_n)} if self.memory else {})
        found = {key: np.zeros_like(self.given[key]) for key in ("x", "weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        found |= self.states("h_0", "c_0")
        self.place(given | found, prefix="d_")
        self.job.backward(2)
        return found


def check_recurrence(
    native: Any, checks: Checks, kind: int, sizes: tuple[int, int, int], reverse: bool, ragged: bool
) -> None:
    """A whole recurrence, and the gradients of Σ output∘R + Σ h_n∘S + Σ c_n∘Q along a direction of each tensor."""
    run = Recurrence(native, kind, sizes, reverse, ragged)
    batch, steps, hidden = sizes
    r, s, q = (run.draw.normal(size=shape) for shape in ((batch, steps, hidden), (batch, hidden), (batch, hidden)))
    r *= (np.arange(steps) < run.lengths[:, None])[..., None]
    made, wanted = run.forward(), recurrence(run.name, run.inputs, run.lengths, reverse)
    for key, one in zip(("output", "h_n", "c_n"), wanted, strict=True):
        if key in made:
            checks.close(f"{run.name} forward", made[key], one, FLOAT32, None if key == "c_n" else 1.0)

    def loss(changed: dict[str, Array]) -> float:
        out, h, c = recurrence(run.name, changed, run.lengths, reverse)
        return float((out * r).sum() + (h * s).sum() + ((c * q).sum() if run.memory else 0))

    for key, gradient in run.backward(r, s, q).items():
        value, exactly = run.inputs[key], gradient.astype(np.float64)
        direction, small = run.draw.normal(size=value.shape), 1e-6
        ahead, behind = (loss({**run.inputs, key: value + sign * small * direction}) for sign in (1, -1))
        slope = np.array((ahead - behind) / (2 * small))
        size = float(np.linalg.norm(exactly) * np.linalg.norm(direction)) + 1e-3
        checks.close(f"{run.name} backward", np.array(np.sum(exactly * direction)), slope, GRADIENT, size)


class Tensor:
    """A float32 array that the extension takes for torch's tensor."""

    def __init__(self, values: Array) -> None:
        self.values = floats(values)
        self.shape = (ctypes.c_int64 * self.values.ndim)(*self.values.shape)
        self.strides = (ctypes.c_int64 * self.values.ndim)(*(stride // 4 for stride in self.values.strides))


class View(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )  # fmt: skip


class Managed(ctypes.Structure):
    """DLPack's DLManagedTensorVersioned."""


FREE = ctypes.PYFUNCTYPE(None, ctypes.POINTER(Managed))
Managed._fields_ = (
    ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("free", FREE), ("flags", ctypes.c_uint64),
    ("view", View),
)  # fmt: skip
TAKE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Managed), ctypes.POINTER(ctypes.c_void_p))
LOOK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(View))


class Table(ctypes.Structure):
    """DLPack's table of functions, of which the extension calls `take` and `look`."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2), ("older", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
        ("give", ctypes.c_void_p), ("take", TAKE), ("look", LOOK), ("stream", ctypes.c_void_p),
    )  # fmt: skip


def look(tensor: Tensor, view: Any) -> int:
    to = view.contents
    to.data, to.dimensions, to.offset = tensor.values.ctypes.data, tensor.values.ndim, 0
    to.device[0], to.device[1], to.code, to.bits, to.lanes = 1, 0, 2, 32, 1
    to.shape, to.strides = tensor.shape, tensor.strides
    return 0


def take(managed: Any, out: Any) -> int:
    view = managed.contents.view
    shape, strides = view.shape[: view.dimensions], view.strides[: view.dimensions]
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    memory = np.ctypeslib.as_array(ctypes.cast(view.data, ctypes.POINTER(ctypes.c_float)), (extent,))
    tensor = Tensor(np.lib.stride_tricks.as_strided(memory, shape, [4 * stride for stride in strides]).copy())
    managed.contents.free(managed)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
    out[0] = id(tensor)
    return 0


TABLE = Table((ctypes.c_uint32 * 2)(1, 3), None, None, None, TAKE(take), LOOK(look), None)


def connect(native: Any) -> None:
    """Gives the extension our arrays for torch's tensors."""
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    assert native.connect(Tensor, capsule(ctypes.addressof(TABLE), b"dlpack_exchange_api", None))


def rounded(top: int) -> Callable[[Array, Array], Array]:
    """A product of whole numbers up to `top`, with a scale for each row of the matrix and of the input."""

    def times(x: Array, matrix: Array) -> Array:
        def whole(rows: Array) -> tuple[Array, Array]:
            scale = np.max(np.abs(rows), axis=1, keepdims=True) / top
            return np.rint(rows / np.where(scale > 0, scale, 1)), scale

        (a, a_scale), (b, b_scale) = whole(x), whole(matrix)
        return (a @ b.T) * a_scale * b_scale.T

    return times


# 8-bit inputs at a tie may round either way, by a last place of the scale
PRODUCTS: list[tuple[str, Callable[[Array, Array], Array], float]] = [
    ("fp32", exact, FLOAT32),
    ("fp16", lambda x, matrix: x @ matrix.astype(np.float16).astype(np.float64).T, FLOAT32),
    ("int16", rounded(8191), 2e-4),
    ("int8", rounded(127), 5e-3),
]


def check_steps(native: Any, checks: Checks, kind: int, hidden: int, batch: int) -> None:
    """Four steps of a stepper, with every format of weights."""
    name, gates, memory, *_ = native.CELLS[kind]
    features = 9
    draw = np.random.default_rng([kind, hidden, batch])
    w = {key: floats(value).astype(np.float64) for key, value in weights_of(draw, gates, features, hidden).items()}
    for number, (weights, times, tolerance) in enumerate(PRODUCTS):
        stepper = native.Stepper(number)
        kept = {key: floats(value) for key, value in w.items()}
        stepper.add_layer(
            kind,
            features,
            hidden,
            hidden,
            False,
            0.0,
            0.0,
            {key: (one.ctypes.data, one.size) for key, one in kept.items()},
        )
        h = c = np.zeros((batch, hidden))
        stream = native.Stream(stepper, batch)
        for _ in range(4):
            x = floats(draw.normal(size=(batch, features))).astype(np.float64)
            states = [Tensor(state[:, None]) for state in ((h, c) if memory else (h,))]
            output, new = stepper.step(Tensor(x), tuple(states))
            wanted_h, wanted_c = cell_step(name, w, x, h, c, times)
            checks.close(f"step, {weights}", output.values, wanted_h, tolerance, 1.0)
            checks.close("a stream's steps", stream.feed(Tensor(x)).values, output.values, 0.0)
            if memory:
                checks.close(f"step, {weights}", new[1].values[:, 0], wanted_c, tolerance, 2.0)
            h = new[0].values[:, 0].astype(np.float64)
            c = new[1].values[:, 0].astype(np.float64) if memory else c


def ctc(log_probs: Array, target: Array) -> float:
    """−log p(target) by the forward algorithm (Graves et al. 2006), blank 0."""
    extended = np.zeros(2 * len(target) + 1, int)
    extended[1::2] = target
    alpha = np.full(len(extended), -np.inf)
    alpha[:2] = log_probs[0, extended[:2]]
    for frame in log_probs[1:]:
        before = alpha.copy()
        for s in range(len(extended)):
            skip = s > 1 and extended[s] != 0 and extended[s] != extended[s - 2]
            ways = [before[s], before[s - 1] if s > 0 else -np.inf, before[s - 2] if skip else -np.inf]
            alpha[s] = np.logaddexp.reduce(ways) + frame[extended[s]]
    return -float(np.logaddexp.reduce(alpha[-2:]))


def check_ctc(native: Any, checks: Checks, labels: int) -> None:
    batch, steps = 3, 13
    draw = np.random.default_rng(labels)
    scores = draw.normal(size=(batch, steps, labels))
    log_probs = floats(scores - np.log(np.exp(scores).sum(-1, keepdims=True)))
    sizes, lengths = np.array([4, 1, 0], np.int64), np.array([13, 7, 5], np.int64)
    targets, offsets = draw.integers(1, labels, 5).astype(np.int64), np.array([0, 4, 5], np.int64)
    losses, gradient = np.zeros(batch, np.float32), np.zeros_like(log_probs)
    job = native.CtcJob()
    job.batch, job.steps, job.labels, job.blank = batch, steps, labels, 0
    job.batch_stride, job.step_stride = steps * labels, labels
    for key, value in {
        "log_probs": log_probs, "targets": targets, "offsets": offsets, "target_lengths": sizes,
        "input_lengths": lengths, "losses": losses, "gradient": gradient,
    }.items():  # fmt: skip
        setattr(job, key, value.ctypes.data)
    job.run(2)

    def loss(of: Array) -> Array:
        parts = [targets[offsets[b] : offsets[b] + sizes[b]] for b in range(batch)]
        return np.array([ctc(of[b, : lengths[b]], parts[b]) for b in range(batch)])

    exactly = log_probs.astype(np.float64)
    checks.close("CTC loss", losses, loss(exactly), FLOAT32)
    direction = draw.normal(size=log_probs.shape)
    slope = (loss(exactly + 1e-6 * direction) - loss(exactly - 1e-6 * direction)) / 2e-6
    along = (gradient.astype(np.float64) * direction).sum((1, 2))
    checks.close("CTC gradient", along, slope, GRADIENT, float(np.linalg.norm(direction)))


def check_vocabulary(native: Any, checks: Checks, size: int) -> None:
    rows, best = 5, 4
    draw = np.random.default_rng(size)
    scores = floats(draw.normal(size=(rows, size)) * 3)
    exactly = scores.astype(np.float64)
    totals = np.log(np.exp(exactly).sum(1))
    values, tokens = np.zeros((rows, best), np.float32), np.zeros((rows, best), np.int64)
    summed, targets = np.zeros(rows, np.float32), draw.integers(0, size, rows).astype(np.int64)
    top = native.TopJob()
    top.rows, top.size, top.best, top.row_stride = rows, size, best, size
    top.scores, top.values, top.tokens, top.totals = (one.ctypes.data for one in (scores, values, tokens, summed))
    top.run(2)
    order = np.argsort(-exactly, axis=1, kind="stable")[:, :best]
    checks.close("best scores", tokens, order, 0.0)
    checks.close("best scores", values, np.take_along_axis(exactly, order, 1), 0.0)
    checks.close("best scores", summed, totals, FLOAT32)
    losses, gradient = np.zeros(rows, np.float32), scores.copy()
    job = native.CrossEntropyJob()
    job.rows, job.size, job.row_stride, job.gradient, job.smoothing = rows, size, size, True, 0.1
    job.scores, job.targets, job.losses = gradient.ctypes.data, targets.ctypes.data, losses.ctypes.data
    job.run(2)
    wanted = np.full((rows, size), 0.1 / size)
    wanted[np.arange(rows), targets] += 0.9
    checks.close("cross-entropy", losses, totals - (wanted * exactly).sum(1), FLOAT32)
    checks.close("cross-entropy gradient", gradient, np.exp(exactly - totals[:, None]) - wanted, FLOAT32)


def check_names(native: Any) -> None:
    """Ends with an error at a name of the extension that nothing checks."""
    missing = sorted({name for name in vars(native) if not name.startswith("_")} - CHECKED)
    if missing:
        raise SystemExit(f"Nothing checks {', '.join(missing)}: write a check, and add the names to CHECKED.")


def main() -> None:
    wheel = Path(sys.argv[1]).absolute()
    native, checks = load(wheel), Checks()
    check_names(native)
    native.set_scratch_nan(True)
    connect(native)
    sizes = [(1, 1, 1), (2, 3, 7), (5, 9, 16), (3, 7, 33), (13, 4, 64)]
    for kind, some, reverse, ragged in itertools.product(native.CELLS, sizes, (False, True), (False, True)):
        check_recurrence(native, checks, kind, some, reverse, ragged)
    for kind, hidden, batch in itertools.product(native.CELLS, (1, 7, 16, 50, 130), (1, 3)):
        check_steps(native, checks, kind, hidden, batch)
    for labels in (2, 5, 33):
        check_ctc(native, checks, labels)
    for size in (4, 31, 1000):
        check_vocabulary(native, checks, size)
    check_rows_apart(native, checks)
    check_decoders(native, checks)
    check_narrow(native, checks)
    check_prefix_search(native, checks)
    check_hotwords(native, checks)
    check_alignment(native, checks)
    check_dictionary_search(native, checks, check_ngrams(native, checks))
    check_lines(native, checks, wheel)
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    print(f"{platform.machine()}, {versions}, {native.isa()} kernels of {', '.join(native.isas())}")
    for what, (count, worst) in checks.done.items():
        print(f"  {what}: {count} comparisons, worst error {worst:.1e}")


if __name__ == "__main__":
    main()
