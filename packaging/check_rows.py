"""Checks of products and attention in a wheel's extension: rows apart, attention decoders, scores in bfloat16.

`packaging/check_kernels.py` runs them. Each compares with the equations in numpy, in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from comparing import FLOAT32, GRADIENT, Array, Checks, cell_step, exact, floats


def softmax(scores: Array, seen: Array | None = None) -> Array:
    """Softmax over the last dimension at positions `seen`, zero elsewhere; a row that sees none is all zeros."""
    if seen is None:
        seen = np.ones(scores.shape, bool)
    highest = np.max(np.where(seen, scores, -1e30), axis=-1, keepdims=True)
    shares = np.where(seen, np.exp(np.where(seen, scores - highest, 0)), 0)
    total = shares.sum(-1, keepdims=True)
    return shares / np.where(total > 0, total, 1)


def check_rows_apart(native: Any, checks: Checks) -> None:
    """Products and attention whose rows do not depend on those beside them: that too is compared, to the bit."""
    for rows, depth, columns in ((1, 1, 1), (9, 7, 63), (50, 100, 65), (33, 257, 130)):
        check_product(native, checks, rows, depth, columns)
    for size, causal in itertools.product((5, 16, 64, 80), (False, True)):
        check_attention(native, checks, size, causal)


def check_product(native: Any, checks: Checks, rows: int, depth: int, columns: int) -> None:
    draw = np.random.default_rng([rows, depth, columns])
    x, w, bias = (floats(draw.normal(size=shape)) for shape in ((rows, depth), (columns, depth), (columns,)))

    def product(given: Array) -> Array:
        job, out = native.ApartProductJob(), np.full((len(given), columns), np.nan, np.float32)
        job.rows, job.columns, job.depth, job.x_row = len(given), columns, depth, depth
        job.x, job.w, job.bias, job.out = (one.ctypes.data for one in (given, w, bias, out))
        job.run(2)
        return out

    whole = product(x)
    checks.close("product, rows apart", whole, exact(x.astype(np.float64), w.astype(np.float64)) + bias, FLOAT32)
    for first, count in ((0, 1), (rows // 2, 1), (rows // 3, 2)):
        alone = np.ascontiguousarray(x[first : first + count])
        checks.close("a row alone", product(alone), whole[first : first + len(alone)], 0.0)

    left, right = floats(draw.normal(size=(3, rows, depth))), floats(draw.normal(size=(3, depth, columns)))
    job, out = native.ApartProductJob(), np.full((3, rows, columns), np.nan, np.float32)
    job.count, job.rows, job.columns, job.depth, job.upright = 3, rows, columns, depth, True
    job.x_row, job.x_next, job.w_next = depth, rows * depth, depth * columns
    job.x, job.w, job.out = (one.ctypes.data for one in (left, right, out))
    job.run(2)
    checks.close("product, rows apart", out, left.astype(np.float64) @ right.astype(np.float64), FLOAT32)


def check_attention(native: Any, checks: Checks, size: int, causal: bool) -> None:
    batch, heads, queries, positions = 2, 3, 6, 11
    draw = np.random.default_rng([size, causal])
    q = floats(draw.normal(size=(batch, heads, queries, size)))
    k, v = (floats(draw.normal(size=(batch, heads, positions, size))) for _ in range(2))
    mask = draw.random((batch, positions)) < 0.7
    mask[0, -queries:] = True
    mask[1] = False  # sees nothing: zeros
    k[~np.broadcast_to(mask[:, None], k.shape[:3])] = np.nan  # what is hidden must not be read
    v[~np.broadcast_to(mask[:, None], v.shape[:3])] = np.nan
    job = native.ApartAttentionJob()
    job.batch, job.heads, job.queries, job.positions, job.size = batch, heads, queries, positions, size
    job.causal, job.scale, job.mask_batch, job.mask_row = causal, size**-0.5, positions, 0
    out = np.full((batch, queries, heads * size), np.nan, np.float32)
    weights, seen_bytes = np.full((batch, heads, queries, positions), np.nan, np.float32), mask.astype(np.uint8)
    for name, one in (("q", q), ("k", k), ("v", v)):
        setattr(job, name, one.ctypes.data)
        for stride, count in zip(("batch", "head", "row"), one.strides, strict=False):
            setattr(job, f"{name}_{stride}", count // 4)
    job.mask, job.out, job.weights = (one.ctypes.data for one in (seen_bytes, out, weights))
    job.run(2)
    past = np.arange(positions) <= np.arange(queries)[:, None] + positions - queries if causal else True
    seen = np.broadcast_to(mask[:, None, None] & past, weights.shape)
    keys, values = (np.nan_to_num(one.astype(np.float64)) for one in (k, v))
    wanted = softmax(q.astype(np.float64) @ keys.swapaxes(2, 3) * size**-0.5, seen)
    checks.close("attention, rows apart", weights, wanted, FLOAT32)
    context = (wanted @ values).swapaxes(1, 2).reshape(out.shape)
    checks.close("attention, rows apart", out, context, FLOAT32)


class Decoder:
    """An attention decoder: its inputs in float64, the equations, and the extension's job."""

    batch, steps, positions, hidden, feed, size, value = 3, 4, 5, 6, 7, 8, 9

    def __init__(self, native: Any, kind: int, luong: bool, additive: bool, ragged: bool) -> None:
        self.native, self.kind, self.luong, self.ragged = native, kind, luong, ragged
        self.name, self.gates, self.memory, self.candidate, self.two_products = native.CELLS[kind]
        if not luong:
            self.feed = self.value
        draw = np.random.default_rng([kind, luong, additive, ragged])
        self.draw = draw
        self.inputs = {
            name: floats(draw.normal(size=shape) * 0.4).astype(np.float64) for name, shape in self.shapes(additive)
        }
        self.mask = draw.random((self.batch, self.positions)) < 0.7
        self.mask[:, 0] = True
        self.lengths = draw.integers(0, self.steps + 1, self.batch) if ragged else np.full(self.batch, self.steps)
        self.lengths = self.lengths.astype(np.int64)

    def shapes(self, additive: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
        b, h, wide = self.batch, self.hidden, self.gates * self.hidden
        yield from (("gates_x", (b, self.steps, wide)), ("weight_hh", (wide, h)), ("bias_hh", (wide,)))
        yield from (("weight_feed", (wide, self.feed)), ("h_0", (b, h)), ("c_0", (b, h)))
        yield from (("weight_query", (self.size, h)), ("keys", (b, self.positions, self.size)))
        yield "values", (b, self.positions, self.value)
        if additive:
            yield "vector", (self.size,)
        if self.luong:
            yield from (
                ("weight_mix", (self.feed, self.value + h)),
                ("bias_mix", (self.feed,)),
                ("fed_0", (b, self.feed)),
            )

    def equations(self, w: dict[str, Array]) -> tuple[Array, Array, Array]:
        """Outputs, contexts and weights, zero past a length (Bahdanau et al. 2015; Luong et al. 2015)."""
        h, c, fed = w["h_0"], w["c_0"], w.get("fed_0")
        cell = {"weight_ih": np.eye(self.gates * self.hidden), "bias_ih": np.zeros(1), **w}
        found: list[tuple[Array, Array, Array]] = []
        for t in range(self.steps):
            if fed is None:
                context, weights = self.look(w, h)
                h, c = cell_step(self.name, cell, w["gates_x"][:, t] + exact(context, w["weight_feed"]), h, c, exact)
                output = h
            else:
                h, c = cell_step(self.name, cell, w["gates_x"][:, t] + exact(fed, w["weight_feed"]), h, c, exact)
                context, weights = self.look(w, h)
                mixed = exact(np.concatenate([context, h], axis=1), w["weight_mix"]) + w["bias_mix"]
                output = fed = np.tanh(mixed)
            real = (t < self.lengths)[:, None]
            found.append((output * real, context * real, weights * real))
        output, context, weights = (np.stack(parts, axis=1) for parts in zip(*found, strict=True))
        return output, context, weights

    def look(self, w: dict[str, Array], h: Array) -> tuple[Array, Array]:
        query = exact(h, w["weight_query"])
        if "vector" in w:
            scores = np.tanh(query[:, None] + w["keys"]) @ w["vector"]
        else:
            scores = np.einsum("ba,bsa->bs", query, w["keys"]) * self.size**-0.5
        weights = softmax(scores, self.mask)
        return np.einsum("bs,bsv->bv", weights, w["values"]), weights

    def run(self, given: tuple[Array, Array, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """The results, and the gradients of Σ output∘R + Σ context∘S + Σ weights∘Q."""
        job = self.native.AttentionJob()
        job.kind, job.batch, job.steps, job.positions = self.kind, self.batch, self.steps, self.positions
        job.hidden, job.key_size, job.value_size, job.context_size = self.hidden, self.size, self.value, self.value
        job.feed, job.luong, job.scale = self.feed, self.luong, self.size**-0.5
        buffers = Buffers(job)
        buffers.place(**{name: floats(one) for name, one in self.inputs.items() if self.memory or name != "c_0"})
        buffers.place(mask=self.mask.astype(np.uint8))
        if self.ragged:
            order, active = np.zeros(self.batch, np.int64), np.zeros(self.steps, np.int64)
            where = [one.ctypes.data for one in (order, active)]
            self.native.sort_by_length(self.lengths.ctypes.data, self.batch, self.steps, *where)
            buffers.place(lengths=self.lengths, order=order, active=active)
        made = self.forward(buffers)
        return made, self.backward(buffers, given)

    def forward(self, buffers: Buffers) -> dict[str, Array]:
        """Outputs, contexts and weights; what the backward pass reads is saved."""
        wide, b, t = self.gates * self.hidden, self.batch, self.steps
        saved = {"gates": wide, "h_entering": self.hidden, "fed_rows": self.feed, "query_rows": self.size}
        saved |= {"c_entering": self.hidden} if self.memory else {}
        saved |= {"candidate": self.hidden} if self.candidate else {}
        saved |= {"hidden_rows": self.hidden, "mixed": self.hidden + self.value} if self.luong else {}
        buffers.unwritten(**{name: (b * t, width) for name, width in saved.items()})
        out = self.feed if self.luong else self.hidden
        made = buffers.unwritten(output=(b, t, out), context=(b, t, self.value), weights=(b, t, self.positions))
        buffers.unwritten(**{f"{name}_n": shape for name, shape in self.states().items()})
        buffers.job.forward(2)
        return made

    def backward(self, buffers: Buffers, given: tuple[Array, Array, Array]) -> dict[str, Array]:
        """The gradients by the names of the inputs; those of weights are products that the caller makes."""
        b, t = self.batch, self.steps
        buffers.place(**dict(zip(("d_output", "d_context", "d_weights"), map(floats, given), strict=True)))
        states = self.states()
        buffers.place(**{f"d_{name}_n": np.zeros(shape, np.float32) for name, shape in states.items()})
        shapes: dict[str, tuple[int, ...]] = {f"d_{name}_0": shape for name, shape in states.items()}
        shapes |= {"d_gates": (b, t, self.gates * self.hidden), "d_seen": (b, t, self.value)}
        shapes |= {"d_scores": (b, t, 1, self.positions), "d_query": (b, t, self.size)}
        shapes |= {"d_candidate": (b, t, self.hidden)} if self.candidate and not self.two_products else {}
        shapes |= {"d_mixed": (b, t, self.feed)} if self.luong else {}
        if "vector" in self.inputs:
            shapes |= {"d_keys": (b, self.positions, self.size), "d_vector": (b, self.size)}
        found = buffers.unwritten(**shapes)
        buffers.job.backward(2)
        gradients = {"gates_x": found["d_gates"]}
        gradients |= {name: found[f"d_{name}"] for name in ("h_0", "c_0", "fed_0", "keys") if f"d_{name}" in found}
        if "vector" in self.inputs:
            gradients["vector"] = found["d_vector"].sum(0)
        return gradients

    def states(self) -> dict[str, tuple[int, int]]:
        """The shapes of the decoder's states."""
        sizes = {"h": self.hidden} | ({"c": self.hidden} if self.memory else {})
        return {name: (self.batch, size) for name, size in (sizes | ({"fed": self.feed} if self.luong else {})).items()}


class Buffers:
    """The arrays of a job, which live as long as it."""

    def __init__(self, job: Any) -> None:
        self.job = job
        self._kept: list[Array] = []

    def place(self, **arrays: Array) -> None:
        """Gives the job the addresses of arrays."""
        for name, one in arrays.items():
            self._kept.append(one)
            if name in ("gates_x", "d_output", "d_context", "d_weights"):
                getattr(self.job, f"set_{name}")(one.ctypes.data, one[0].size, one.shape[2])
            else:
                setattr(self.job, name, one.ctypes.data)

    def unwritten(self, **shapes: tuple[int, ...]) -> dict[str, Array]:
        """New arrays of the job, full of NaN."""
        made = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
        self.place(**made)
        return made


def check_decoders(native: Any, checks: Checks) -> None:
    """Decoders that look before their step (Bahdanau) and after it (Luong), forward and backward."""
    for kind, luong, additive, ragged in itertools.product(native.CELLS, *[(False, True)] * 3):
        check_decoder(Decoder(native, kind, luong, additive, ragged), checks)
    check_look(native, checks)


def check_decoder(run: Decoder, checks: Checks) -> None:
    wanted = run.equations(run.inputs)
    given = [run.draw.normal(size=one.shape) for one in wanted]
    real = (np.arange(run.steps) < run.lengths[:, None])[..., None]
    r, s, q = (one * real for one in given)
    made, gradients = run.run((r, s, q))
    for got, one in zip(made.values(), wanted, strict=True):
        checks.close("decoder with attention, forward", got, one, FLOAT32, 1.0)

    def loss(changed: dict[str, Array]) -> float:
        return float(sum((one * by).sum() for one, by in zip(run.equations(changed), (r, s, q), strict=True)))

    for key, gradient in gradients.items():
        value, exactly = run.inputs[key], gradient.astype(np.float64)
        direction, small = run.draw.normal(size=value.shape), 1e-6
        ahead, behind = (loss({**run.inputs, key: value + sign * small * direction}) for sign in (1, -1))
        slope = np.array((ahead - behind) / (2 * small))
        size = float(np.linalg.norm(exactly) * np.linalg.norm(direction)) + 1e-3
        checks.close("decoder with attention, backward", np.array(np.sum(exactly * direction)), slope, GRADIENT, size)


def check_look(native: Any, checks: Checks) -> None:
    """Contexts of many queries at once, with several heads."""
    batch, steps, positions, heads, size = 2, 3, 7, 2, 5
    draw = np.random.default_rng(0)
    q, k, v = (floats(draw.normal(size=(batch, count, heads * size))) for count in (steps, positions, positions))
    mask = draw.random((batch, positions)) < 0.6
    mask[:, 0] = True
    looked, weights = (
        np.zeros((batch, steps, heads * size), np.float32),
        np.zeros((batch, steps, positions), np.float32),
    )
    seen, job = mask.astype(np.uint8), native.AttentionJob()
    job.batch, job.steps, job.positions, job.heads = batch, steps, positions, heads
    job.key_size = job.value_size = heads * size
    job.scale = 0.3
    job.query_rows, job.keys, job.values, job.mask = (one.ctypes.data for one in (q, k, v, seen))
    job.looked, job.weights = looked.ctypes.data, weights.ctypes.data
    job.look(2)
    split = [one.astype(np.float64).reshape(batch, -1, heads, size).swapaxes(1, 2) for one in (q, k, v)]
    shares = softmax(
        0.3 * split[0] @ split[1].swapaxes(2, 3), np.broadcast_to(mask[:, None, None], (batch, heads, steps, positions))
    )
    checks.close("looks at a memory", weights, shares.mean(1), FLOAT32)
    checks.close("looks at a memory", looked, (shares @ split[2]).swapaxes(1, 2).reshape(looked.shape), FLOAT32)


def check_narrow(native: Any, checks: Checks) -> None:
    """Scores of a vocabulary from x and W rounded to bfloat16, where the processor multiplies those."""
    if not native.narrow():
        return
    rows, size, depth = 5, 70, 33
    draw = np.random.default_rng(0)
    x, w, bias = (floats(draw.normal(size=shape)) for shape in ((rows, depth), (size, depth), (size,)))
    scores, job = np.zeros((rows, size), np.float32), native.NarrowScoresJob()
    job.rows, job.size, job.depth, job.x_stride, job.scores_stride = rows, size, depth, depth, size
    job.x, job.weight, job.bias, job.scores = (one.ctypes.data for one in (x, w, bias, scores))
    job.run(2)
    checks.close("scores in bfloat16", scores, exact(bfloat(x), bfloat(w)) + bias, FLOAT32)


def bfloat(values: Array) -> Array:
    """Rounded to bfloat16: the upper half of a float32, to the nearest, ties to even."""
    bits = values.view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)
