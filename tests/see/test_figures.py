"""Figures: widths, fonts, units, labels, and small inputs."""

from __future__ import annotations

import dataclasses
import io
import logging
import re
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.see.models import input_of, waves
from unrolled.errors import Note, UserError
from unrolled.model import Model
from unrolled.see import attention_figure, attention_maps, compared_maps, hard_attention_maps, length_figure
from unrolled.see.figures.gradients import compare_gradients
from unrolled.see.figures.steps import naming
from unrolled.see.figures.style import quiet, style
from unrolled.see.frames import Frames
from unrolled.see.trace import AttentionMap, ModelTrace, Probe
from unrolled.see.units import most_active

Find = Callable[[str], Model]
WIDTHS = "Expected inches from 2 to 60, such as 5.5, or a name: column (3.3 in), page (6.9 in)."


def labels(axis: Any, which: str = "y") -> list[str]:
    return [label.get_text() for label in getattr(axis, f"get_{which}ticklabels")()]


def panels(figure: Any) -> list[Any]:
    """The axes except colour bars."""
    return [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]


def colours(axis: Any) -> np.ndarray:
    """The values of a heat map panel."""
    (mesh,) = axis.collections
    return np.asarray(mesh.get_array())


# units


def test_the_most_active_units_vary_most_in_all_panels_together() -> None:
    torch.manual_seed(3)
    h, c = torch.randn(9, 20).cumsum(0), torch.randn(9, 20)
    moved = h.diff(dim=0).abs().sum(0) + c.diff(dim=0).abs().sum(0)
    chosen = most_active({"h": h, "c": c.numpy()}, 7)
    assert chosen == sorted(chosen)
    assert set(chosen) == set(moved.topk(7).indices.tolist())
    assert most_active({"h": h[:1]}, 3) == [0, 1, 2]  # one step has no variation
    assert most_active({"h": torch.full((4, 2), torch.nan)}, 5) == [0, 1]


@pytest.mark.parametrize("kind", ["generate-lstm", "generate-gru"])
def test_row_n_is_the_same_unit_in_every_panel_of_a_layer(kind: str, model_of: Find) -> None:
    """All panels must choose the same units."""
    trace = model_of(kind).trace(input_of(kind))
    layer, shown = trace.layers[-1], []
    for name, values in (("gates", trace.gates), ("states", trace.states)):
        axes = panels(trace.figure(name, layer, units=5))
        assert len(axes) == len(values[layer])
        for axis, table in zip(axes, values[layer].values(), strict=True):
            units = [int(text) for text in labels(axis)]
            np.testing.assert_array_equal(colours(axis), table[:, units].T.numpy())
            shown.append(units)
    assert len(shown[0]) == 5
    assert all(units == shown[0] for units in shown)


# width, formats, fonts


def pages(pdf: bytes) -> tuple[float, float]:
    found = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", pdf)
    assert found is not None
    return float(found[1]), float(found[2])


def objects(pdf: bytes) -> bytes:
    """The bytes of a PDF with decompressed streams, which contain the fonts."""
    parts = []
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        try:
            parts.append(zlib.decompress(packed))
        except zlib.error:
            continue
    return pdf + b"\n".join(parts)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("generate-gru", "gates"),
        ("generate-gru", "gradients"),
        ("translate-transformer", "attention"),
        ("translate-transformer", "beams"),
        ("recognize", "lattice"),
        ("recognize", "frames"),
        ("caption", "attention"),
        ("classify", "losses"),
    ],
)
def test_a_pdf_is_as_wide_as_asked_with_fonts_that_publishers_take(
    kind: str, name: str, model_of: Find, tmp_path: Path
) -> None:
    trace = model_of(kind).trace(input_of(kind))
    trace.figure(name, width="column").savefig(tmp_path / "a.pdf")
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert pages(pdf)[0] == pytest.approx(3.3 * 72, abs=0.01)
    assert b"/Type3" not in objects(pdf)
    assert b"/CIDFontType2" in objects(pdf)


def test_savefig_of_any_figure_has_those_fonts_and_text(tmp_path: Path) -> None:
    figure = attention_figure(["ein", "Hund"], ["a", "dog"], np.eye(2), width=4)
    figure.savefig(tmp_path / "a.pdf", dpi=50)
    figure.savefig(tmp_path / "a.svg")
    figure.savefig(tmp_path / "a.png")
    assert pages((tmp_path / "a.pdf").read_bytes())[0] == 288
    assert b"/Type3" not in objects((tmp_path / "a.pdf").read_bytes())
    svg = (tmp_path / "a.svg").read_text()
    assert ">Hund</text>" in svg
    assert "<image" not in svg.partition("axes_2")[0]  # cells are shapes, not pixels; the colour bar is a gradient
    from PIL import Image

    assert Image.open(tmp_path / "a.png").width == 4 * 300
    length_figure({"x": {"1-5": {"bleu": 3.0, "sentences": 9}}}).savefig(tmp_path / "b.pdf")
    assert b"/Type3" not in objects((tmp_path / "b.pdf").read_bytes())


def test_many_cells_are_an_image_of_300_dots() -> None:
    wide = np.random.default_rng(0).random((60, 150))
    file = io.BytesIO()
    attention_figure(["a"] * 150, ["b"] * 60, wide, width="column").savefig(file, format="pdf", dpi=72)
    found = re.search(rb"/Subtype /Image.*?/Width (\d+)", file.getvalue(), re.DOTALL) or re.search(
        rb"/Width (\d+)", file.getvalue()
    )
    assert found is not None
    assert int(found[1]) > 2 * 300


def test_text_is_smaller_in_a_column_and_settings_of_the_user_come_back(model_of: Find) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    trace = model_of("classify").trace(input_of("classify"))
    sizes: dict[Any, float] = {}
    for width in ("column", "page", None):
        figure: Any = trace.figure("losses", width=width)
        figure.savefig(io.BytesIO())
        sizes[width] = figure.axes[0].xaxis.label.get_fontsize()
        assert figure.axes[0].get_xticklabels()[0].get_fontsize() >= 6
    assert 7 <= sizes["column"] < sizes["page"] < sizes[None] == 10
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("width", "problem"),
    [
        ("wide", "width='wide' is not a width."),
        ("3.3in", "width='3.3in' is not a width."),
        (0.5, "width=0.5 is out of range."),
        ("nan", "width='nan' is out of range."),
        (-3, "width=-3 is out of range."),
        ([3], "width=[3] is not a width."),
    ],
)
def test_invalid_widths(width: Any, problem: str, model_of: Find, tmp_path: Path) -> None:
    trace = model_of("classify").trace(input_of("classify"))
    for call in (lambda: trace.figure("losses", width=width), lambda: trace.save(tmp_path / "new", width=width)):
        with pytest.raises(UserError) as error:
            call()
        assert str(error.value) == f"{problem} {WIDTHS}"
    assert not (tmp_path / "new").exists()


def test_only_some_figures(model_of: Find, tmp_path: Path) -> None:
    trace = model_of("generate-rnn").trace(input_of("generate-rnn"))
    made = trace.save(tmp_path, only=["norms", "losses", "norms"])
    assert [path.name for path in made] == ["norms.png", "losses.png"]
    drawings = "attention, beams, flow, forecast, frames, gates, gradients, lattice, losses, norms, states."
    for only, message in (
        (["nroms"], f"Unknown figure 'nroms'. Did you mean 'norms'? Choices: {drawings}"),
        (["gates"], "A vanilla RNN has no gates. Choices: losses, states, norms, gradients, flow."),
        ([], "No figure is named. Choices: losses, states, norms, gradients, flow."),
    ):
        with pytest.raises(UserError) as error:
            trace.save(tmp_path, only=only)
        assert str(error.value) == message


def test_no_figure_is_wider_than_a_screen_unless_asked(model_of: Find) -> None:
    trace = model_of("generate-rnn").trace("3 and 4 make 7\n" * 20)
    assert all(trace.figure(name).get_figwidth() == 12 for name in ("losses", "states", "norms"))
    assert trace.figure("losses", width=22).get_figwidth() == 22
    assert attention_figure(["a"] * 90, ["b"] * 90, np.eye(90)).get_figwidth() == 12


# matplotlib's own warnings


def test_warnings_and_log_lines_of_matplotlib_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with style(8):
            warnings.warn("Glyph 9 missing from font", UserWarning, stacklevel=1)
            logging.getLogger("matplotlib.font_manager").warning("findfont: not found")
            warnings.warn("ours", Note, stacklevel=1)
        with suppress(RuntimeError), quiet():
            warnings.warn("ours too", Note, stacklevel=1)
            raise RuntimeError
    assert [str(one.message) for one in caught] == ["ours", "ours too"]
    assert not caplog.records


def test_a_picture_too_small_for_its_labels_is_drawn_without_a_word(tmp_path: Path) -> None:
    """matplotlib's warnings are hidden: collapsed axes, missing glyphs, equal limits."""
    tokens = ["a very long name indeed" * 3, "\u0007\t", "一"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", Note)
        figure = attention_figure(tokens, tokens, np.zeros((3, 3)), "title", width=2)
        figure.savefig(tmp_path / "a.pdf")
        figure.savefig(tmp_path / "a.png")


# labels


def test_single_letters_stand_upright_beside_a_long_name(model_of: Find) -> None:
    """A long label such as <bos> must not make all labels vertical."""
    trace = model_of("generate-lstm").trace("3 and 4 make 7")
    for axis in (panels(trace.figure("states"))[-1], panels(trace.figure("losses"))[0]):
        assert {label.get_rotation() for label in axis.get_xticklabels()} == {0}
    turned = naming(["<bos>", *"and"], 1.0, 8).turned
    assert turned == [True, False, False, False]
    figure = attention_figure(list("inspect"), ["a"], np.ones((1, 7)) / 7)
    assert {label.get_rotation() for label in figure.axes[0].get_xticklabels()} == {0}


def test_steps_that_are_too_many_to_name_are_numbered(model_of: Find) -> None:
    trace = model_of("generate-gru").trace("3 and 4 make 7\n" * 20)
    (axis,) = panels(trace.figure("losses", width="column"))
    assert axis.get_xlabel() == "step"
    assert len(axis.get_xticks()) < 12


def test_many_lines_have_few_names() -> None:
    from unrolled.see.figures.canvas import Picture, legend, lines

    with style(8):
        axis: Any = Picture(3.3, 2).subplots()
        lines(axis, {f"l{i}": np.arange(5.0) * i for i in range(48)})
        legend(axis)
    names = [text.get_text() for text in axis.get_legend().get_texts()]
    assert names == [*(f"l{i}" for i in range(40, 48)), "40 others"]


def test_ticks_of_logarithms_do_not_collide() -> None:
    from unrolled.see.figures.canvas import Picture, log_axis

    for low, high in ((0.7, 1.1), (0.09, 1.2), (1e-9, 2.0), (3.0, 3.0), (1e-5, 4e-5)):
        with style(8):
            figure = Picture(3.3, 1.5)
            axis = figure.subplots()
            axis.plot([0, 1], [low, high])
            log_axis(axis, [low, high])
        figure.savefig(io.BytesIO())
        bottom, top = axis.get_ylim()
        seen = [label for label in axis.get_yticklabels() if bottom <= label.get_position()[1] <= top]
        assert 1 <= len(seen) <= 8
        boxes = [label.get_window_extent() for label in seen]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        assert not any(label.get_text() for label in axis.get_yticklabels(minor=True))


# one loss, one step, no gates


def test_a_single_loss_shows_what_was_likely(model_of: Find) -> None:
    trace = model_of("classify").trace(input_of("classify"))
    axis: Any
    (axis,) = trace.figure("losses").axes
    assert labels(axis) == [name for name, _ in trace.guesses[0]]
    widths = [bar.get_width() for bar in axis.patches]
    assert widths == pytest.approx([chance for _, chance in trace.guesses[0]])
    (axis,) = trace.figure("gradients", "l0").axes  # no square of one row
    (line,) = axis.get_lines()
    np.testing.assert_allclose(line.get_ydata(), trace.gradients("l0")[0])
    assert labels(axis, "x") == trace.tokens
    (axis,) = compare_gradients({"a": trace, "b": trace}).axes
    assert len(axis.get_lines()) == 2


def test_no_panel_is_empty(model_of: Find) -> None:
    """An RNN has no panel of gate means; a single step is drawn as bars."""
    trace = model_of("generate-rnn").trace(input_of("generate-rnn"))
    assert len(trace.figure("norms").axes) == 1
    one = model_of("generate-lstm").trace("3")
    for name in ("norms", "flow", "gradients", "losses", "gates", "states"):
        for axis in panels(one.figure(name, width="column")):
            assert axis.patches or axis.collections or axis.images
            assert not any(len(line.get_xdata()) == 1 for line in axis.get_lines())


def test_a_frame_without_a_signal_has_no_panel_for_it() -> None:
    rows = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    frames = Frames(rows, ["<blank>", "a"], [0, 1, 0])
    trace = ModelTrace("recognize", "a", ["a"], torch.ones(1), probes={"input": Probe(["0"])}, frames=frames)
    assert [axis.get_ylabel() for axis in panels(trace.figure("frames"))] == ["probability", "label"]


# CTC, attention, captions, forecasts


def test_the_lattice_and_the_posteriors_share_time(model_of: Find) -> None:
    trace = model_of("recognize").trace(input_of("recognize"), text="ab")
    assert trace.frames is not None
    lattice, frames = trace.figure("lattice"), trace.figure("frames")
    above, below = panels(lattice)
    assert above.get_shared_x_axes().joined(above, below)
    assert below.get_xlim() == (0, trace.frames.end) == panels(frames)[-1].get_xlim()
    assert below.get_xlabel() == panels(frames)[-1].get_xlabel() == trace.frames.unit
    lattice.savefig(io.BytesIO())
    assert above.get_position().x0 == pytest.approx(below.get_position().x0)
    assert above.get_position().x1 == pytest.approx(below.get_position().x1)
    (path,) = below.get_lines()
    steps = len(trace.frames.path)
    np.testing.assert_allclose(path.get_xdata(), (np.arange(steps) + 0.5) * trace.frames.end / steps)


def test_a_chosen_head_is_outlined(model_of: Find) -> None:
    trace = model_of("translate-transformer").trace("3 5 7")
    figure = trace.figure("attention", head=(2, 1))
    outlined = [axis.get_title() for axis in figure.axes if axis.spines["left"].get_linewidth() >= 2]
    assert outlined == ["layer 2, head 1"]
    for head in ((0, 1), (3, 1), (1,)):
        with pytest.raises(UserError) as error:
            trace.figure("attention", head=head)
        assert str(error.value) == f"There is no head {head}. Expected (layer, head), from (1, 1) to (2, 2)."


def test_captions_begin_with_the_picture_itself() -> None:
    picture = np.random.default_rng(1).integers(0, 255, (8, 12, 3)).astype(np.uint8)
    for width in (None, "column", 5):
        figure = attention_maps(picture, list("abcdefgh"), np.ones((8, 2, 2)) / 4, "words", width)
        shown = [axis for axis in figure.axes if axis.get_visible()]
        np.testing.assert_array_equal(shown[0].images[0].get_array(), picture)
        assert [axis.get_title() for axis in shown] == ["", *"abcdefgh"]


def test_hard_attention_shows_the_weights_and_below_them_the_region_that_was_read() -> None:
    """Figure 2 of Xu et al. 2015: one region of the lower row is bright, in the manner of the upper one."""
    random = np.random.default_rng(2)
    picture = random.integers(0, 255, (8, 12, 3)).astype(np.uint8)
    tokens, weights = list("abcdefg"), random.dirichlet(np.ones(6), 7).reshape(7, 2, 3)
    read = np.zeros((7, 2, 3))
    for number, one in enumerate(weights):
        read[number][one == one.max()] = 1.0
    figure = hard_attention_maps(picture, tokens, weights, "words")
    shown = [axis for axis in figure.axes if axis.get_visible()]
    np.testing.assert_array_equal(shown.pop(0).images[0].get_array(), picture)
    assert [axis.get_title() for axis in shown] == [*"abcde", *[""] * 5, *"fg", "", ""]
    assert [axis.get_ylabel() for axis in shown if axis.get_ylabel()] == ["weights", "looked at"] * 2
    plain = [attention_maps(picture, tokens, maps).axes[1:8] for maps in (weights, read)]
    wanted = [*plain[0][:5], *plain[1][:5], *plain[0][5:], *plain[1][5:]]
    for axis, other in zip(shown, wanted, strict=True):
        np.testing.assert_array_equal(axis.images[0].get_array(), other.images[0].get_array())


def test_soft_and_hard_captions_stand_above_each_other() -> None:
    soft, hard = (list("ab"), np.ones((2, 2, 2)) / 4), (list("xyz"), np.ones((3, 2, 2)) / 4)
    figure = compared_maps(None, {"soft": soft, "hard": hard}, width=5)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == list("abxyz")
    assert [axis.get_ylabel() for axis in shown] == ["soft", "", "hard", "", ""]
    with pytest.raises(UserError, match=r"The attention has shape \(2, 2, 2\)\. Expected \(3, rows, columns\)"):
        compared_maps(None, {"soft": (list("abc"), soft[1])})


class Known(NamedTuple):
    rows: list[int]
    forecast: list[float]
    truth: list[float]


def test_forecasts_stand_beside_what_came(model_of: Find) -> None:
    trace = model_of("forecast").trace(waves(4))
    nan = float("nan")
    one, two = Known([1, 2, 3, 4], [1.1, 2.1, 3.1, 4.1], [1.0, 2.0, 3.0, nan]), Known([2, 3], [5.0, 6.0], [2.0, 3.0])
    object.__setattr__(trace, "forecasts", {"a+1": one, "a+2": two, "b$": Known([0], [7.0], [nan])})
    figure = trace.figure("forecast", width="column")
    first, second = panels(figure)
    drawn = {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in first.get_lines()}
    assert drawn == {
        "truth": ([1, 2, 3], [1.0, 2.0, 3.0]),
        "forecast 1 ahead": (one.rows, one.forecast),
        "forecast 2 ahead": (two.rows, two.forecast),
    }
    assert (first.get_ylabel(), second.get_ylabel()) == ("a", r"b\$")
    assert [line.get_label() for line in second.get_lines()] == ["forecast"]


def test_a_matrix_of_one_cell() -> None:
    figure = attention_figure(["a"], ["b"], np.ones((1, 1)), width="column")
    figure.savefig(io.BytesIO(), format="pdf")
    found = AttentionMap(["a"], ["b"], torch.ones(2, 3, 1, 1))
    trace = ModelTrace("x", "y", ["z"], torch.ones(1), probes={"input": Probe(["z"])}, attention={"m": found})
    assert len(trace.figure("attention").axes) == 6


@pytest.mark.parametrize("kind", ["forecast", "classify"])
def test_gradients_that_are_exactly_zero_are_said_to_be(kind: str, model_of: Find) -> None:
    trace = model_of(kind).trace(input_of(kind))
    still = dataclasses.replace(trace, _losses=0.0 * trace._losses)
    for figure in ("gradients", "flow"):
        for one, says in ((trace, False), (still, True)):
            texts = [text.get_text() for axis in one.figure(figure).axes for text in axis.texts]
            assert ("every gradient is exactly 0" in texts) == says, figure
