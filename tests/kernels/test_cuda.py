"""The cuda engine without a GPU: compiled kernels, plans, cache and refusals."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import unrolled
from tests.kernels.compiled import gpu_report
from tests.kernels.cuda_cases import CELLS, make
from unrolled.cells import LSTMCell, RNNCell
from unrolled.errors import UserError
from unrolled.kernels import ENGINES, ScanJob, choose
from unrolled.kernels.cuda import compiler, launch
from unrolled.kernels.recurrence.cuda import compiler as programs
from unrolled.kernels.recurrence.cuda import constants
from unrolled.kernels.recurrence.cuda import engine as cuda
from unrolled.kernels.recurrence.cuda.arguments import INTEGERS, POINTERS, Arguments
from unrolled.kernels.recurrence.cuda.plan import (
    GRU,
    GRU_BEFORE,
    KINDS,
    LSTM,
    LSTM_CURRENT,
    RNN_TANH,
    DeviceLimits,
    Kind,
    Pass,
    make_plan,
    padded_size,
    shared_bytes,
)

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="cuda-bindings and nvidia-cuda-nvrtc are not installed"
)
H200, A100 = DeviceLimits(132, 227 * 1024, ((2, 66), (4, 30), (8, 15), (16, 7))), DeviceLimits(108, 163 * 1024)


def report(
    kind: Kind,
    hidden: int,
    dtype: torch.dtype,
    architecture: str,
    units: int = 16,
    in_cluster: bool = False,
    many_rows: bool = False,
) -> str:
    """The log of ptxas for a kernel."""
    return gpu_report(programs.recurrence(kind, hidden, dtype, units, in_cluster, many_rows), architecture)


@needs_nvrtc
class TestCompiles:
    @pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
    def test_every_kernel(self, kind: Kind) -> None:
        """In float16 and bfloat16, on the older and the newer architecture, by turns."""
        dtype, architecture = [(torch.float16, "sm_90"), (torch.bfloat16, "sm_80")][KINDS.index(kind) % 2]
        log = report(kind, 270, dtype, architecture)
        assert len(re.findall(r"Compiling entry function '(?:forward|backward)'", log)) == 2
        assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill", log) == [("0", "0")] * 2

    @pytest.mark.parametrize(
        ("number", "sizes"), [(LSTM, (1024, 1536)), (GRU, (1024, 1500)), (GRU_BEFORE, (1024, 1536))]
    )
    def test_the_widest_stay_in_registers(self, number: int, sizes: tuple[int, ...]) -> None:
        """Up to 128 of a thread's 255 registers are weights; what is spilt would be read again at every step.

        The more units a layer has, the more registers each thread holds, and with many rows more yet: of every number
        of units in a block, the widest.
        """
        kind = KINDS[number]
        widest: dict[tuple[Pass, int], tuple[int, bool]] = {}
        directions: tuple[Pass, ...] = ("forward", "backward")
        for direction, hidden, batch, limits in product(directions, sizes, (16, 64, 200), (H200, A100)):
            plan = make_plan(kind, direction, padded_size(hidden), batch, limits)
            if plan is not None:
                assert not plan.in_cluster
                way = (direction, plan.units)
                widest[way] = max(widest.get(way, (0, False)), (hidden, plan.many_rows))
        assert {units for _, units in widest} == {16, 32}
        for (direction, units), (hidden, many) in widest.items():
            log = report(kind, hidden, torch.float16, "sm_90", units, many_rows=many)
            used = re.search(rf"function '{direction}'(?s:.*?)(\d+) bytes stack frame, (\d+) bytes spill", log)
            assert used is not None
            assert used.groups() == ("0", "0")

    @pytest.mark.parametrize(
        "kind",
        [kind for kind in KINDS if kind.cluster_source and kind is not KINDS[RNN_TANH]],
        ids=lambda kind: kind.name,
    )
    def test_clusters(self, kind: Kind) -> None:
        """The widest, at which most registers are in use."""
        log = report(kind, 512, torch.bfloat16, "sm_90", 32, in_cluster=True)
        assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill", log) == [("0", "0")] * 2

    @pytest.mark.parametrize("number", [RNN_TANH, LSTM_CURRENT, GRU])
    def test_single_steps(self, number: int) -> None:
        """One of each number of gates; test_cuda_simulated.py runs all."""
        kind = KINDS[number]
        log = gpu_report(programs.single_step(kind, torch.float16, 8), "sm_80")
        assert "Compiling entry function 'single_step'" in log

    def test_a_mistake_is_shown(self) -> None:
        texts = programs.sources() | {"recurrence.cu": "this is not C++"}
        with pytest.raises(RuntimeError, match=r"recurrence\.cu does not compile (?s:.*)this is not"):
            compiler.compile_source("recurrence.cu", texts, compiler.OPTIONS)

    def test_compiled_programs_are_cached(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("UNROLLED_CACHE", str(tmp_path / "cache"))
        compiler._say_once.cache_clear()
        program = programs.recurrence(KINDS[0], 32, torch.float16, 16)

        def compiled(architecture: str = "sm_90", program: compiler.Program = program) -> bytes:
            compiler.machine_code.cache_clear()
            return compiler.machine_code(program, architecture)

        first = compiled()
        (kept,) = (tmp_path / "cache").iterdir()
        assert kept.read_bytes() == first
        assert capsys.readouterr().err == "Compiling GPU kernels; this takes some seconds, once.\n"
        kept.write_bytes(b"from the disk")
        assert compiled() == b"from the disk"
        compiled("sm_80")
        assert len(list((tmp_path / "cache").iterdir())) == 2
        texts = programs.sources()
        changed = program._replace(texts=lambda: texts | {"cells.cuh": texts["cells.cuh"] + "\n"})
        assert compiled(program=changed) != b"from the disk"
        assert capsys.readouterr().err == ""
        compiler.machine_code.cache_clear()

    def test_a_disk_that_cannot_be_written_costs_time_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("UNROLLED_CACHE", str(tmp_path / "file" / "below"))
        compiler.machine_code.cache_clear()
        program = programs.recurrence(KINDS[0], 32, torch.float16, 16)
        assert compiler.machine_code(program, "sm_90")[:4] == b"\x7fELF"
        compiler.machine_code.cache_clear()


class TestPlans:
    @pytest.mark.parametrize("limits", [H200, A100], ids=["H200", "A100"])
    @pytest.mark.parametrize("batch", [1, 3, 16, 64, 200, 1000])
    @pytest.mark.parametrize("hidden", [1, 17, 64, 128, 200, 256, 512, 650, 1024, 1500, 1536])
    def test_every_row_and_unit_has_one_owner(self, hidden: int, batch: int, limits: DeviceLimits) -> None:
        padded = padded_size(hidden)
        for kind in KINDS:
            for direction in ("forward", "backward"):
                whole = make_plan(kind, direction, padded, batch, limits)
                assert whole is not None
                parts = [(whole, whole.rows)] if whole.rest is None else [(whole, whole.rows), (whole.rest, batch)]
                for plan, rows in parts:
                    blocks = padded // plan.units
                    groups = plan.blocks // blocks
                    assert plan.blocks == groups * blocks
                    assert plan.cluster == (blocks if plan.in_cluster else 1)
                    assert plan.in_cluster or plan.blocks <= limits.multiprocessors
                    before = rows - plan.rows
                    assert plan.rows == min(batch - before, groups * plan.group_rows)
                    assert (groups - 1) * plan.group_rows < plan.rows
                    assert plan.chunk_rows % 8 == 0
                    assert plan.chunk_rows <= 32
                    assert plan.shared_bytes <= limits.shared_bytes
                if whole.rest is not None:
                    assert whole.blocks + whole.rest.blocks <= limits.multiprocessors

    @pytest.mark.parametrize(
        ("hidden", "batch", "share", "forward", "backward"),
        [  # the blocks of a cluster, 1 if there are none; a block's units; the rows beside
            (128, 64, 1, (8, 16, 0), (8, 16, 0)),
            (128, 64, 2, (4, 32, 0), (4, 32, 0)),  # 16 clusters of eight blocks would take turns
            (256, 120, 1, (8, 32, 0), (8, 32, 0)),  # as many clusters as run at once
            (256, 128, 1, (8, 32, 8), (8, 32, 0)),
            (256, 136, 1, (8, 32, 0), (8, 32, 0)),  # 16 rows find no room
            (256, 64, 2, (8, 32, 8), (8, 32, 0)),
            (512, 56, 1, (16, 32, 0), (16, 32, 0)),
            (512, 64, 1, (16, 32, 8), (16, 32, 8)),
            (512, 72, 1, (1, 32, 0), (1, 32, 0)),
        ],
    )
    def test_clusters_where_they_pay(
        self, hidden: int, batch: int, share: int, forward: tuple[int, ...], backward: tuple[int, ...]
    ) -> None:
        for direction, wanted in (("forward", forward), ("backward", backward)):
            plan = make_plan(KINDS[LSTM], direction, padded_size(hidden), batch, H200.part(share))  # type: ignore[arg-type]
            assert plan is not None
            assert (plan.cluster, plan.units, plan.rest.rows if plan.rest else 0) == wanted

    def test_chunks_shrink_before_shared_memory_is_too_small(self) -> None:
        kind = KINDS[LSTM]
        wide, narrow = (
            make_plan(kind, "forward", 1024, 256, DeviceLimits(132, size)) for size in (227 * 1024, 110 * 1024)
        )
        assert wide is not None
        assert narrow is not None
        assert narrow.chunk_rows < wide.chunk_rows

    def test_a_gpu_that_is_too_small(self) -> None:
        assert make_plan(KINDS[LSTM], "forward", 1536, 16, DeviceLimits(95, 227 * 1024)) is None
        assert make_plan(KINDS[LSTM], "forward", 1536, 16, DeviceLimits(132, 64 * 1024)) is None
        assert shared_bytes(KINDS[LSTM], "forward", 1536, 16, 8, 1) > 64 * 1024


def test_kernels_and_python_share_their_constants() -> None:
    """No number of constants.py is defined again in a kernel's source."""
    names = re.findall(r"constexpr int (\w+) =", constants.header())
    assert {"WARPS", "TILE_ROWS", "MAX_REGISTER_FRAGMENTS", "EMPTY_WORD"} <= set(names)
    for text in (text for name, text in programs.sources().items() if name != "constants.h"):
        assert not re.search(rf"\b(?:{'|'.join(names)}) = ", text)


def test_the_structure_has_no_holes() -> None:
    assert ctypes.sizeof(Arguments) == 8 * (len(POINTERS) + len(INTEGERS))


PLAIN = {
    "cell": "lstm", "steps": 3, "batch": 2, "hidden": 4, "dtype": torch.float16, "lengths": False, "resets": None,
    "reverse": False, "bias": True, "time_major": False,
}  # fmt: skip


def changed(**changes: Any) -> Callable[[ScanJob], ScanJob]:
    def change(job: ScanJob) -> ScanJob:
        assert isinstance(job.cell, LSTMCell)
        return replace(job, cell=replace(job.cell, **changes))

    return change


NORM_ONLY = "it has the layer norm of an LSTM without peepholes only: of W x, U h and c"
REFUSED: dict[str, tuple[Callable[[ScanJob], ScanJob], str]] = {
    "float32": (
        lambda job: replace(job, x=job.x.float()),
        "it computes in float16 or bfloat16 (or float32 under autocast to one of them), "
        "got torch.float16, torch.float32",
    ),
    "half of layer norm": (changed(norm_hh=torch.ones(16)), NORM_ONLY),
    "norm of c": (changed(norm_c=torch.ones(4)), NORM_ONLY),
    "mask": (
        changed(hidden_mask=torch.ones(2, 4)),
        "it has no variational dropout inside the recurrence",
    ),
    "projection": (changed(weight_hr=torch.ones(4, 4)), "it has no projections"),
    "zoneout": (lambda job: replace(job, keep=(0.1, 0.1)), "it has no zoneout"),
    "empty": (lambda job: replace(job, x=job.x[:, :0]), "the batch is empty"),
    "activation": (
        changed(activation=torch.relu),
        "it has the usual activations only: tanh and sigmoid, or relu for an RNN",
    ),
    "wide": (
        changed(weight_hh=torch.zeros(4 * 1537, 1537, dtype=torch.float16)),
        "it has up to 1536 units, got 1537",
    ),
}


class TestRefuses:
    @pytest.mark.parametrize("name", REFUSED)
    def test_refused_cells_have_a_reason(self, name: str) -> None:
        change, reason = REFUSED[name]
        assert cuda.refuses_cell(change(make(PLAIN))) == reason

    def test_nothing_else(self) -> None:
        for cell in CELLS:
            for changes in ({}, {"lengths": True}, {"resets": "learned"}, {"reverse": True}, {"bias": False}):
                assert cuda.refuses_cell(make({**PLAIN, "cell": cell, **changes})) is None

    def test_a_cell_of_ones_own(self) -> None:
        class Mine(RNNCell):
            pass

        job = make({**PLAIN, "cell": "rnn"})
        assert isinstance(job.cell, RNNCell)
        mine = replace(job, cell=Mine(job.cell.weight_ih, job.cell.weight_hh))
        assert cuda.refuses_cell(mine) == "it has no cell Mine"

    def test_under_autocast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
        job = make({**PLAIN, "cell": "gru"})
        assert cuda.refuses_cell(job) is None
        assert cuda.refuses_cell(replace(job, x=job.x.float())) is None
        reason = cuda.refuses_cell(replace(job, x=job.x.double()))
        assert reason == "it computes in float16 or bfloat16, got torch.float64"
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float32)
        assert cuda.refuses_cell(job) == "it computes in float16 or bfloat16, autocast asks for torch.float32"

    def test_a_cpu(self) -> None:
        with pytest.raises(UserError, match=r"The engine 'cuda' cannot do this: it runs on an NVIDIA GPU, .* on cpu\."):
            unrolled.LSTM(3, 4, backend="cuda")(torch.zeros(5, 2, 3))

    def test_auto_does_not_speak_of_it_on_a_cpu(self) -> None:
        job = replace(make(PLAIN), keep=(0.1, 0.1))
        assert "cuda" not in str(choose(job))
        assert "cuda" in ENGINES

    def test_without_the_bindings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
        compiler.missing.cache_clear()
        reason = compiler.missing()
        compiler.missing.cache_clear()
        assert reason == "it needs the package cuda-bindings, which is not installed (pip install cuda-bindings)"

    @needs_nvrtc
    def test_a_driver_that_is_older_than_the_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from cuda.bindings import driver, nvrtc

        status = SimpleNamespace(value=222, name="CUDA_ERROR_UNSUPPORTED_PTX_VERSION")
        monkeypatch.setattr(driver, "cuModuleLoadData", lambda code: (status, None))
        monkeypatch.setattr(nvrtc, "nvrtcVersion", lambda: (0, 13, 9))
        monkeypatch.setattr(compiler, "machine_code", lambda *_: b"")
        monkeypatch.setattr(launch, "_enter", lambda device: None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        program = compiler.Program("none.cu", (), dict)
        with pytest.raises(UserError) as error:
            launch.loaded(program, "none", torch.device("cuda"))
        assert str(error.value) == (
            "The GPU's driver does not load kernels that NVRTC 13.9 compiled: CUDA_ERROR_UNSUPPORTED_PTX_VERSION. "
            "Install a newer driver, or the NVRTC of the CUDA version that nvidia-smi shows, such as: "
            "pip install 'nvidia-cuda-nvrtc==13.0.*'"
        )

    @needs_nvrtc
    def test_without_the_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from cuda.bindings import nvrtc

        def not_found() -> None:
            raise RuntimeError("no libnvrtc")

        compiler.missing.cache_clear()
        assert compiler.missing() is None
        monkeypatch.setattr(nvrtc, "nvrtcVersion", not_found)
        compiler.missing.cache_clear()
        reason = compiler.missing()
        compiler.missing.cache_clear()
        assert reason == "it needs NVRTC, which is not installed (pip install nvidia-cuda-nvrtc)"

    def test_auto_takes_it_only_where_it_was_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
        sizes = cuda.Measured((LSTM,), torch.float16, "NVIDIA H200", (4, 8), (1, 2), steps=3, run="recurrent_gpu.json")
        monkeypatch.setattr(cuda, "FASTER", (sizes,))
        assert cuda.outdone(make(PLAIN)) is None
        for changes in ({"hidden": 9}, {"batch": 3}, {"steps": 2}, {"cell": "gru"}, {"dtype": torch.bfloat16}):
            reason = cuda.outdone(make({**PLAIN, **changes}))
            assert reason == "it has not been measured to be faster than cuDNN at this size on this GPU"
        monkeypatch.setattr(cuda, "FASTER", (sizes._replace(in_training=True),))
        job = make(PLAIN)
        assert cuda.outdone(job) is not None
        job.x.requires_grad_()
        assert cuda.outdone(job) is None
        with torch.no_grad():
            assert cuda.outdone(job) is not None
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "another")
        assert cuda.outdone(job) is not None

    def test_auto_takes_it_for_what_cudnn_lacks(self) -> None:
        for changes in ({"cell": "lstm_current"}, {"cell": "gru_before"}, {"cell": "lstm_norm"}, {"resets": "zero"}):
            assert cuda.outdone(make({**PLAIN, **changes})) is None

    def test_the_table_agrees_with_the_measured_file(self) -> None:
        """Every entry of the table against the file that it names: nowhere slower, in a graph or without."""
        names = {"RNN": RNN_TANH, "LSTM": LSTM, "GRU": GRU}
        dtypes = {"fp16": torch.float16, "bf16": torch.bfloat16}
        for entry in cuda.FASTER:
            run = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / entry.run).read_text())
            assert run["machine"]["gpu"] == entry.gpu
            found = set()
            for one in run["details"]:
                if one.get("layers") != 1 or one["directions"] != 1 or one["backend"] != "cuda":
                    continue
                kind, training = names[one["cell"]], one["what"] == "training"
                sizes = one["hidden"], one["batch"], one["steps"], training
                if kind in entry.kinds and dtypes[one["dtype"]] == entry.dtype and entry.holds(*sizes):
                    found.add(kind)
                    assert one["ratio"] > 1, one
                    assert one["eager"]["theirs"] > one["eager"]["ours"], one
            assert found == set(entry.kinds)
