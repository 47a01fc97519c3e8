// The network itself, unrolled over a few steps, with one unit's numbers on its wires.

import { draw, said } from "unrolled/elements";

const WIDE = 124, HIGH = 92, BOX = { width: 58, height: 44 }, LEFT = 84;

// `found` is the view `unrolled`; a click on a cell picks its step and layer.
export function unrolledDiagram(found, { step, layer, unit, onpick }) {
  const { layers, tokens, first } = found, width = LEFT + WIDE * tokens.length + 40, height = HIGH * layers.length + 108;
  const y = (row) => height - 70 - HIGH * (row + 1) + 20, x = (t) => LEFT + WIDE * t;
  const arrow = draw("marker", { id: "way", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, draw("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }));
  const words = `The network unrolled over steps ${first} to ${first + tokens.length - 1}. Unit ${unit}: ${layers.map((one) => `${one.name} h ${(one.values.h ?? []).map((v) => said(v, 2)).join(", ")}`).join("; ")}`;
  const drawing = draw("svg", { viewBox: `0 0 ${width} ${height}`, style: `width:${width / 16}rem;max-width:max(100%, ${0.62 * width / 16}rem)`, role: "img", "aria-label": words, id: "unrolled" }, draw("defs", {}, arrow));
  const line = (x1, y1, x2, y2) => draw("line", { x1, y1, x2, y2, class: "wire", "marker-end": "url(#way)" });
  const label = (x, y, text, kind = "value", anchor = "middle") => draw("text", { x, y, class: kind, "text-anchor": anchor }, text);
  tokens.forEach((token, t) => {
    const middle = x(t) + BOX.width / 2, chosen = first + t === step;
    drawing.append(label(middle, height - 24, token.length > 12 ? `${token.slice(0, 11)}…` : token, chosen ? "" : "small"), label(middle, height - 6, `step ${first + t}`, "small"));
    layers.forEach((one, row) => {
      drawing.append(line(middle, row === 0 ? height - 40 : y(row - 1), middle, y(row) + BOX.height + 2));
      if (row === 0) drawing.append(label(middle + 6, height - 46, `‖x‖ ${said(one.read[t], 2)}`, "small", "start"));
      drawing.append(cell(one, row, t), ...across(one, row, t));
    });
    const top = y(layers.length - 1);
    drawing.append(line(middle, top, middle, top - 24), label(middle + 6, top - 8, said(layers.at(-1).values.h?.[t], 2), "value", "start"));
    if (found.said[t] !== undefined) drawing.append(label(middle, top - 32, `→ ${found.said[t]}`, "small"));
  });
  return drawing;

  function cell(one, row, t) {
    const chosen = first + t === step && one.name === layer;
    return draw("g", { class: "pick", "data-step": first + t, "data-layer": one.name, onclick: () => onpick(first + t, one.name) },
      draw("title", {}, Object.entries(one.values).map(([name, values]) => `${name} ${said(values?.[t])}`).join("\n")),
      draw("rect", { x: x(t), y: y(row), ...BOX, rx: 8, class: chosen ? "cell chosen" : "cell" }), label(x(t) + BOX.width / 2, y(row) + BOX.height / 2 + 4, one.name.replace("_reverse", " ←").replace(/^.*\./, ""), "small"));
  }

  // What a step hands on: to the right, or, where a layer reads backwards, to the left.
  function across(one, row, t) {
    const height = y(row) + BOX.height / 2, made = [], states = one.states.filter((name) => one.values[name]);
    const numbers = (from, values) => states.forEach((name, i) => made.push(label(from, height - 6 + 20 * (i % 2) - 12 * Math.floor(i / 2), `${name} ${said(values[name]?.[t], 2)}`)));
    if (one.reverse) {
      made.push(line(x(t) - 2, height, x(t) + BOX.width - WIDE + 2, height));
      numbers(x(t) - (WIDE - BOX.width) / 2, one.values);
      return made;
    }
    if (t === 0) { made.push(line(x(0) - LEFT + 20, height, x(0) - 2, height)); numbers(x(0) - 32, one.entering); }
    made.push(line(x(t) + BOX.width, height, x(t) + WIDE - 2, height));
    numbers(x(t) + BOX.width + (WIDE - BOX.width) / 2, one.values);
    return made;
  }
}
