// States and gates over the input; units sorted by what they go with; their places in a longer text.

import { choice, make, number, tokenStrip } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change, traced } from "unrolled/state";
import { SIGNED, SQUASHED, curves, heat, tokenAxis } from "unrolled/plot";

const MARKS = {
  "inside quotes": (tokens) => { let open = 0; return tokens.map((t) => { if (/^["“”]/.test(t)) { open = 1 - open; return 1; } return open; }); },
  "place in the line": (tokens) => { let place = 0; return tokens.map((t) => { place = t.includes("↵") ? 0 : place + 1; return place; }); },
  "place in the word": (tokens) => { let place = 0; return tokens.map((t) => { place = /[␣↵]/.test(t) ? 0 : place + 1; return place; }); },
};

export default {
  title: "States and gates",
  help: "Every layer's states and gates over the input",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("states") ? null : overview.missing.states),
  async show(place, { overview, state }) {
    const layer = overview.layers.find((one) => one.name === state.layer) ?? overview.layers[0];
    const quantity = state.quantity in layer.quantities ? state.quantity : Object.keys(layer.quantities)[0];
    const tokens = overview.parts.find((part) => part.name === layer.part).tokens;
    const marks = state.mark ? expand(state.mark, tokens) : null;
    const order = state.order === "mark" && !marks ? "natural" : state.order ?? "natural";
    place.append(make("div", { class: "line" },
      choice("layer", overview.layers.map((one) => one.name), layer.name, (value) => change({ layer: value, first: "", last: "" })),
      choice("quantity", Object.entries(layer.quantities).map(([name, one]) => [name, one.title]), quantity, (value) => change({ quantity: value })),
      choice("units", [["natural", "as they are"], ["lively", "liveliest first"], ...(isReport ? [] : [["mark", "by my mark"]])], order,
        (value) => change({ order: value, top: "", bottom: "" })),
      state.first || state.top ? make("button", { type: "button", onclick: () => change({ first: "", last: "", top: "", bottom: "" }) }, "whole picture") : null,
    ));
    if (!isReport) marker(place, tokens, marks);
    const query = { ...traced(), layer: layer.name, quantity, first: state.first, last: state.last, top: state.top, bottom: state.bottom, order };
    if (order === "mark") query.mark = marks.join(",");
    const found = await ask("values", query);
    picture(place, found, layer.quantities[quantity].title);
    if (found.correlations.length) {
      const best = found.units.slice(0, 10).map((unit, i) => `${unit} (${found.correlations[i].toFixed(2)})`);
      place.append(make("p", { id: "correlations" }, `Units that go most with the mark, with their correlations: ${best.join(", ")}`));
    }
    const norms = await ask("norms", { ...traced(), part: layer.part });
    const places = norms.tokens.map((_, i) => i);
    const axis = tokenAxis(places, norms.tokens), width = Math.min(4000, 9 * places.length);
    curves(place, norms.states, { title: "Norms of the states", xaxis: axis, yaxis: { rangemode: "tozero" }, width });
    if (Object.keys(norms.gates).length) curves(place, norms.gates, { title: "Means of the gates", xaxis: axis, yaxis: { range: [0, 1] }, width });
    if (!isReport) await activations(place, state, layer, quantity);
  },
};

function expand(mark, tokens) {
  if (mark in MARKS) return MARKS[mark](tokens);
  const chosen = new Set(mark.split(",").map(Number));
  return tokens.map((_, i) => (chosen.has(i) ? 1 : 0));
}

function marker(place, tokens, marks) {
  const chosen = new Set(marks && !(stateMark() in MARKS) ? stateMark().split(",").map(Number) : []);
  const most = marks ? Math.max(...marks, 1) : 1;
  const box = make("details", { id: "marker", open: marks !== null }, make("summary", {}, "Mark tokens, and sort the units by what goes with the mark"));
  box.append(make("div", { class: "line" }, ...Object.keys(MARKS).map((name) => make("button", { type: "button", onclick: () => change({ mark: name, order: "mark" }) }, name)),
    make("button", { type: "button", onclick: () => change({ mark: "", order: "" }) }, "no mark")));
  box.append(tokenStrip(tokens, {
    shade: (i) => (marks ? marks[i] / most : 0),
    pressed: (i) => chosen.has(i),
    onpick: (i) => {
      if (!chosen.delete(i)) chosen.add(i);
      change({ mark: [...chosen].sort((a, b) => a - b).join(","), order: chosen.size ? "mark" : "" });
    },
  }));
  place.append(box);
}

function stateMark() { return new URLSearchParams(location.hash.slice(1)).get("mark") ?? ""; }

function picture(place, found, title) {
  const limit = found.signed ? Math.max(found.largest, 1e-6) : 1;
  const rows = found.units.map((_, i) => i);
  const each = found.units_each > 1 ? `, means of ${found.units_each} units` : "";
  const steps = found.steps_each > 1 ? `, means of ${found.steps_each} steps` : "";
  const inner = heat(place, {
    z: found.z, x: found.steps, y: rows, colours: found.signed ? SIGNED : SQUASHED, low: found.signed ? -limit : 0, high: limit,
    title: `${title}${each}${steps}${isReport || !(each || steps) ? "" : "; drag to zoom in"}`,
    xaxis: tokenAxis(found.steps, found.tokens, { title: { text: "step" } }),
    yaxis: { title: { text: "unit" }, autorange: "reversed", tickmode: "array", tickvals: rows.filter((i) => i % Math.ceil(rows.length / 16) === 0), ticktext: found.units.filter((_, i) => i % Math.ceil(rows.length / 16) === 0).map(String) },
    hover: "step %{x}, row %{y}: %{z:.4f}", height: Math.min(640, 160 + 6 * Math.max(16, rows.length)), width: Math.min(4000, 9 * found.steps.length),
  });
  inner.dataset.rows = found.z.length;
  if (isReport || !(each || steps)) return;
  inner.on("plotly_relayout", (event) => {
    const left = event["xaxis.range[0]"], right = event["xaxis.range[1]"];
    if (left === undefined || right === undefined) return;
    const updates = { first: Math.max(0, Math.floor(left)), last: Math.ceil(right) + 1 };
    const low = event["yaxis.range[0]"], high = event["yaxis.range[1]"];
    if (low !== undefined) {
      const top = Number(new URLSearchParams(location.hash.slice(1)).get("top") ?? 0);
      const [a, b] = [Math.min(low, high), Math.max(low, high)];
      updates.top = top + Math.max(0, Math.round(a)) * found.units_each;
      updates.bottom = top + (Math.round(b) + 1) * found.units_each;
    }
    change(updates);
  });
}

async function activations(place, state, layer, quantity) {
  const most = layer.quantities[quantity].units - 1;
  const long = make("textarea", { rows: 3, placeholder: "a longer text; empty: the input above", "aria-label": "longer text" });
  const file = make("input", { type: "file", "aria-label": "a file", onchange: async () => { long.value = await file.files[0].text(); } });
  const table = make("div", { id: "places" });
  const look = async () => {
    const query = { ...traced(), layer: layer.name, quantity, unit: state.unit ?? "0" };
    if (long.value) query.text = long.value;
    try {
      const found = await ask("places", query);
      const row = (one) => make("tr", {}, make("td", {}, String(one.value)), make("td", {}, String(one.step)),
        make("td", { class: "equation" }, one.before, make("mark", {}, one.token), one.after));
      table.replaceChildren(make("h2", {}, "most"), make("table", {}, ...found.most.map(row)), make("h2", {}, "least"), make("table", {}, ...found.least.map(row)));
    } catch (problem) { table.replaceChildren(make("p", { class: "problem" }, problem.message)); }
  };
  place.append(make("h2", {}, "Where is a unit most active?"), make("div", { class: "line" },
    number("unit", state.unit ?? 0, most, (value) => { state.unit = value; change({ unit: value }); }),
    make("label", {}, "text of a file ", file), make("button", { type: "button", id: "find-places", onclick: look }, "Find")), long, make("div", { class: "scroll" }, table));
}
