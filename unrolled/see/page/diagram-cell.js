// A cell with the values of one unit at one step: inputs, gates and outputs.

import { draw, formatted } from "unrolled/elements";

const BOX = { width: 92, height: 40 };

// The drawing of a cell with these quantities, or null for a custom cell; `earlier` is the step of its input state.
export function cellDiagram(values, entering, earlier) {
  const has = (...names) => names.every((name) => name in values);
  if (has("i", "f", "g", "o", "c")) return lstm(values, entering, earlier);
  if (has("r", "z", "n")) return gru(values, entering, earlier);
  return Object.keys(values).join() === "h" ? rnn(values, entering, earlier) : null;
}

function frame(width, height, title, ...parts) {
  const arrow = draw("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, draw("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }));
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, style: `width:${width / 16}rem;max-width:100%`, role: "img", "aria-label": title, class: "cell-diagram" }, draw("defs", {}, arrow), ...parts);
}

function wire(...points) { return draw("path", { class: "wire", d: `M${points.map(([x, y]) => `${x} ${y}`).join(" L")}`, "marker-end": "url(#tip)" }); }

function box(x, y, name, value, chosen = false) {
  return draw("g", {}, draw("rect", { x, y, ...BOX, rx: 6, class: chosen ? "cell chosen" : "cell" }),
    draw("text", { x: x + BOX.width / 2, y: y + 16, "text-anchor": "middle", class: "small" }, name), draw("text", { x: x + BOX.width / 2, y: y + 33, "text-anchor": "middle", class: "value" }, formatted(value)));
}

function sign(x, y, text) {
  return draw("g", {}, draw("circle", { cx: x, cy: y, r: 13, class: "cell" }), draw("text", { x, y: y + 5, "text-anchor": "middle" }, text));
}

// A name and its value at the end of a wire.
function end(x, y, name, value, anchor) {
  return draw("g", {}, draw("text", { x, y: y - 6, "text-anchor": anchor, class: "small" }, name), draw("text", { x, y: y + 12, "text-anchor": anchor, class: "value" }, formatted(value)));
}

function lstm(v, before, earlier) {
  const words = `LSTM cell: c before ${formatted(before.c)}, forget gate ${formatted(v.f)}, input gate ${formatted(v.i)}, candidate ${formatted(v.g)}, output gate ${formatted(v.o)}; c ${formatted(v.c)}, h ${formatted(v.h)}`;
  return frame(600, 300, words,
    end(4, 60, `c(${earlier})`, before.c, "start"), wire([66, 60], [120, 60]), sign(134, 60, "×"), wire([148, 60], [252, 60]), sign(266, 60, "+"), wire([280, 60], [530, 60]), end(596, 60, "c(t)", v.c, "end"),
    box(88, 150, "f = σ(…)", v.f), wire([134, 150], [134, 75]),
    box(192, 150, "i = σ(…)", v.i), wire([238, 150], [238, 122]), sign(266, 110, "×"), wire([266, 97], [266, 75]),
    box(296, 150, "g = tanh(…)", v.g), wire([342, 150], [342, 110], [281, 110]), wire([238, 122], [252, 112]),
    box(400, 150, "o = σ(…)", v.o), wire([446, 150], [446, 124]), sign(446, 110, "×"), wire([446, 60], [446, 96]), draw("text", { x: 452, y: 84, class: "small" }, "tanh"), wire([460, 110], [530, 110]), end(596, 110, "h(t)", v.h, "end"),
    end(4, 240, `h(${earlier})`, before.h, "start"), wire([66, 240], [134, 240], [134, 191]), wire([134, 240], [238, 240], [238, 191]), wire([238, 240], [342, 240], [342, 191]), wire([342, 240], [446, 240], [446, 191]),
    draw("text", { x: 66, y: 286, class: "small" }, `every gate combines the input x(t) with h(${earlier})`));
}

function gru(v, before, earlier) {
  const words = `GRU cell: h before ${formatted(before.h)}, reset gate ${formatted(v.r)}, update gate ${formatted(v.z)}, candidate ${formatted(v.n)}; h ${formatted(v.h)}`;
  return frame(600, 290, words,
    end(4, 60, `h(${earlier})`, before.h, "start"), wire([66, 60], [336, 60]), sign(350, 60, "×"), wire([364, 60], [432, 60]), sign(446, 60, "+"), wire([460, 60], [530, 60]), end(596, 60, "h(t)", v.h, "end"),
    box(88, 150, "r = σ(…)", v.r), box(304, 150, "z = σ(…)", v.z), wire([350, 150], [350, 75]), draw("text", { x: 356, y: 100, class: "small" }, "z"),
    box(192, 150, "n = tanh(…)", v.n), wire([180, 170], [191, 170]), draw("text", { x: 96, y: 142, class: "small" }, `r weighs h(${earlier}) in n`),
    wire([396, 170], [446, 170], [446, 126]), sign(446, 110, "×"), wire([446, 96], [446, 75]), draw("text", { x: 452, y: 146, class: "small" }, "1 − z"),
    wire([284, 170], [294, 170], [294, 110], [432, 110]), draw("text", { x: 300, y: 104, class: "small" }, "n"),
    wire([66, 240], [134, 240], [134, 191]), wire([134, 240], [238, 240], [238, 191]), wire([238, 240], [350, 240], [350, 191]),
    end(4, 240, `h(${earlier})`, before.h, "start"), draw("text", { x: 66, y: 280, class: "small" }, `every gate combines the input x(t) with h(${earlier})`));
}

function rnn(v, before, earlier) {
  const words = `RNN cell: h before ${formatted(before.h)}; h ${formatted(v.h)}`;
  return frame(420, 150, words,
    end(4, 50, `h(${earlier})`, before.h, "start"), wire([66, 50], [150, 50]), box(152, 30, "tanh(…)", v.h, true), wire([245, 50], [345, 50]), end(416, 50, "h(t)", v.h, "end"),
    wire([198, 120], [198, 73]), draw("text", { x: 198, y: 140, "text-anchor": "middle", class: "small" }, "x(t), the input"));
}
