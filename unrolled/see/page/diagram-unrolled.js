// The network unrolled over a few steps, with one unit's values on its wires.

import { draw, formatted } from "unrolled/elements";

const BOX = { width: 58, height: 44 }, LEFT = 84;
const ONE = 98, TWO = 196, APART = 84, AWAY = 44;  // heights of a level with one and two directions, and the offset of the second

// `found` is the view `unrolled`; a click on a cell picks its step and layer.
export function unrolledDiagram(found, { step, layer, unit, onpick }) {
  const { layers, tokens, first } = found, levels = levelsOf(layers), both = levels.some((level) => level.length > 1);
  const wide = both ? 164 : 124, shift = both ? AWAY : 0, width = LEFT + wide * tokens.length + 40;
  const height = 98 + levels.reduce((sum, level) => sum + (level.length > 1 ? TWO : ONE), 0), x = (t) => LEFT + wide * t;
  const arrow = draw("marker", { id: "way", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, draw("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }));
  const words = `The network unrolled over steps ${first} to ${first + tokens.length - 1}. Unit ${unit}: ${layers.map((one) => `${one.name} h ${(one.values.h ?? []).map((v) => formatted(v, 2)).join(", ")}`).join("; ")}`;
  const drawing = draw("svg", { viewBox: `0 0 ${width} ${height}`, style: `width:${width / 16}rem;max-width:max(100%, ${0.62 * width / 16}rem)`, role: "img", "aria-label": words, id: "unrolled" }, draw("defs", {}, arrow));
  const label = (x, y, text, kind = "value", anchor = "middle") => draw("text", { x, y, class: kind, "text-anchor": anchor }, text);
  tokens.forEach((token, t) => {
    const middle = x(t) + (BOX.width + shift) / 2, chosen = first + t === step;
    drawing.append(label(middle, height - 24, token.length > 12 ? `${token.slice(0, 11)}…` : token, chosen ? "" : "small"), label(middle, height - 6, `step ${first + t}`, "small"));
    drawing.append(label(middle + 6, height - 46, `‖x‖ ${formatted(layers[0].read[t], 2)}`, "small", "start"));
    let from = height - 40;  // start of the wire into a level
    for (const level of levels) from = (level.length > 1 ? two : one)(level, t, middle, from);
    drawing.append(wire([[middle, from], [middle, from - 24]]));
    if (levels.at(-1).length === 1) drawing.append(label(middle + 6, from - 8, formatted(layers.at(-1).values.h?.[t], 2), "value", "start"));
    if (found.predicted[t] !== undefined) drawing.append(label(middle, from - 32, `→ ${found.predicted[t]}`, "small"));
  });
  return drawing;

  // A unidirectional level: input from below, state above. Returns the start of the next level's wire.
  function one([only], t, middle, from) {
    const top = from - ONE, left = middle - BOX.width / 2;
    drawing.append(wire([[middle, from], [middle, top + BOX.height + 2]], only, t, "in"), cell(only, left, top, t), ...across(only, left, top, t, 0, 0));
    return top;
  }

  // A bidirectional level: one input goes into both cells, and both states are the output.
  function two([forward, backward], t, middle, from) {
    const low = from - ONE, high = low - APART, join = from - TWO, bus = from - 18;
    const left = x(t), right = left + AWAY, into = left + BOX.width / 2, past = right + BOX.width - 15, out = left + 15, over = right + BOX.width / 2;
    drawing.append(
      wire([[middle, from], [middle, bus], [into, bus], [into, low + BOX.height + 2]], forward, t, "in"), wire([[middle, bus], [past, bus], [past, high + BOX.height + 2]], backward, t, "in"),
      cell(forward, left, low, t), cell(backward, right, high, t), ...across(forward, left, low, t, 0, past - left - BOX.width), ...across(backward, right, high, t, right - out, 0),
      wire([[out, low], [out, join], [middle, join]], forward, t, "out", false), wire([[over, high], [over, join], [middle, join]], backward, t, "out", false),
      label(out - 4, join + 10, formatted(forward.values.h?.[t], 2), "value", "end"), label(over + 5, join + 10, formatted(backward.values.h?.[t], 2), "value", "start"));
    return join;
  }

  function wire(points, one, t, what, tip = true) {
    const about = one ? { "data-wire": what, "data-of": one.name, "data-at": first + t } : {};
    return draw("path", { class: "wire", d: `M${points.map(([x, y]) => `${x} ${y}`).join(" L")}`, fill: "none", ...about, ...(tip ? { "marker-end": "url(#way)" } : {}) });
  }

  function cell(one, left, top, t) {
    const chosen = first + t === step && one.name === layer;
    return draw("g", { class: "pick", "data-step": first + t, "data-layer": one.name, onclick: () => onpick(first + t, one.name) },
      draw("title", {}, Object.entries(one.values).map(([name, values]) => `${name} ${formatted(values?.[t])}`).join("\n")),
      draw("rect", { x: left, y: top, ...BOX, rx: 8, class: chosen ? "cell chosen" : "cell" }), label(left + BOX.width / 2, top + BOX.height / 2 + 4, one.name.replace("_reverse", " ←").replace(/^.*\./, ""), "small"));
  }

  // The state passed to the next step: right, or left in a backward layer. Other wires use `before` and `after`.
  function across(one, left, top, t, before, after) {
    const level = top + BOX.height / 2, right = left + BOX.width, gap = wide - BOX.width, made = [], states = one.states.filter((name) => one.values[name]);
    const numbers = (place, values) => states.forEach((name, i) => made.push(label(place, level - 6 + 20 * (i % 2) - 12 * Math.floor(i / 2), `${name} ${formatted(values[name]?.[t], 2)}`)));
    if (one.reverse) {
      if (t === tokens.length - 1) { made.push(wire([[right + 62, level], [right + 2, level]], one, t, "state")); numbers(right + 32, one.entering); }
      made.push(wire([[left, level], [left - gap + 2, level]], one, t - 1, "state"));
      numbers(left - before - (gap - before) / 2, one.values);
      return made;
    }
    if (t === 0) { made.push(wire([[left - LEFT + 20, level], [left - 2, level]], one, t, "state")); numbers(left - 32, one.entering); }
    made.push(wire([[right, level], [right + gap - 2, level]], one, t + 1, "state"));
    numbers(right + after + (gap - after) / 2, one.values);
    return made;
  }
}

// Layers grouped by level: one direction, or two.
function levelsOf(layers) {
  const levels = new Map();
  for (const one of layers) {
    const name = one.name.replace("_reverse", "");
    levels.set(name, [...(levels.get(name) ?? []), one]);
  }
  return [...levels.values()];
}
