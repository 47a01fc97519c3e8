// States and gates over the input; the text coloured by a unit; units by correlation with a mark; their places.

import { choice, formatted, make, number, pager, tokenStrip } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change, remember, traced } from "unrolled/state";
import { curves, heat, tokenAxis } from "unrolled/plot";
import { SQUASHED, signed, tint } from "unrolled/theme";

const MARKS = ["inside quotes", "place in the line", "place in the word"];
let longText = "";  // pasted for `places`; kept when the unit changes

export default {
  title: "States and gates",
  help: "Every layer's states and gates over the input, and the text coloured by one unit",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("states") ? null : overview.missing.states),
  async show(place, { overview, state }) {
    const layer = overview.layers.find((one) => one.name === state.layer) ?? overview.layers[0];
    const quantity = state.quantity in layer.quantities ? state.quantity : Object.keys(layer.quantities)[0];
    const part = overview.parts.find((one) => one.name === layer.part);
    const order = state.order === "mark" && !state.mark ? "natural" : state.order ?? "natural";
    place.append(make("div", { class: "line" },
      choice("layer", overview.layers.map((one) => one.name), layer.name, (value) => change({ layer: value, first: "", last: "" })),
      choice("quantity", Object.entries(layer.quantities).map(([name, one]) => [name, one.title]), quantity, (value) => change({ quantity: value })),
      choice("units", [["natural", "all, by number"], ["lively", "most active, by number"], ...(isReport ? [] : [["mark", "by correlation with the mark"]])], order,
        (value) => change({ order: value, top: "", bottom: "" })),
      state.first || state.top ? make("button", { type: "button", onclick: () => change({ first: "", last: "", top: "", bottom: "" }) }, "reset zoom") : null,
    ));
    const query = { ...traced(), layer: layer.name, quantity, first: state.first, last: state.last, top: state.top, bottom: state.bottom, order };
    let found, problem = null;
    try { found = await ask("values", order === "mark" ? { ...query, mark: state.mark } : query); } catch (error) {
      if (order !== "mark") throw error;
      problem = error.message;  // an invalid mark: show the units in natural order
      found = await ask("values", { ...query, order: "natural" });
    }
    if (!isReport) marker(place, part, state.mark ?? "", found.marks, problem);
    const coloured = make("div", { id: "coloured" });
    picture(place, found, layer.quantities[quantity].title, (unit) => { remember({ unit }); colour(coloured, { layer, quantity, found, state, first: 0 }); });
    if (found.correlations.length) {
      const best = found.units.slice(0, 10).map((unit, i) => `${unit} (${formatted(found.correlations[i], 2)})`);
      place.append(make("p", { id: "correlations" }, `Units with the largest correlations with the mark: ${best.join(", ")}`));
    }
    place.append(coloured);
    await colour(coloured, { layer, quantity, found, state, first: 0 });
    const norms = await ask("norms", { ...traced(), part: layer.part });
    const width = Math.min(4000, 9 * norms.steps.length), axis = () => tokenAxis(norms.steps, norms.tokens, {}, { width });
    const each = norms.steps_each > 1 ? `, means of ${norms.steps_each} steps` : "";
    curves(place, norms.states, { title: `Norms of the states${each}`, x: norms.steps, xaxis: axis(), yaxis: { rangemode: "tozero" }, width, marks: norms.steps.length < 500 });
    if (Object.keys(norms.gates).length) curves(place, norms.gates, { title: `Means of the gates${each}`, x: norms.steps, xaxis: axis(), yaxis: { range: [0, 1] }, width, marks: norms.steps.length < 500 });
    if (!isReport) activations(place, state, layer, quantity);
  },
};

function marker(place, part, mark, marks, problem) {
  const chosen = new Set(mark.startsWith("@") ? mark.slice(1).split(",").map(Number) : []);
  const most = marks.reduce((a, b) => Math.max(a, b), 1);
  const box = make("details", { id: "marker", open: mark !== "" }, make("summary", {}, "Mark tokens and sort the units by correlation with the mark"));
  box.append(make("div", { class: "line" }, ...MARKS.map((name) => make("button", { type: "button", "aria-pressed": mark === name ? "true" : "false", onclick: () => change({ mark: name, order: "mark" }) }, name)),
    make("button", { type: "button", onclick: () => change({ mark: "", order: "" }) }, "no mark")));
  if (problem) box.append(make("p", { class: "problem" }, `${mark}: ${problem}`));
  box.append(tokenStrip(part.tokens, {
    shade: (i) => (marks[i] ?? 0) / most,
    pressed: (i) => chosen.has(i),
    onpick: (i) => {
      if (!chosen.delete(i)) chosen.add(i);
      change({ mark: chosen.size ? `@${[...chosen].sort((a, b) => a - b).join(",")}` : "", order: chosen.size ? "mark" : "" });
    },
  }));
  if (part.steps > part.tokens.length) box.append(make("p", { class: "quiet" }, `The first ${part.tokens.length.toLocaleString("en")} of ${part.steps.toLocaleString("en")} tokens.`));
  place.append(box);
}

function picture(place, found, title, onrow) {
  const limit = found.signed ? Math.max(found.largest ?? 1, 1e-6) : 1;
  const rows = found.units.map((_, i) => i);
  const each = found.units_each > 1 ? `, means of ${found.units_each} units` : "";
  const steps = found.steps_each > 1 ? `, means of ${found.steps_each} steps` : "";
  const every = Math.ceil(rows.length / 48), width = Math.min(4000, 9 * found.steps.length);
  const inner = heat(place, {
    z: found.z, x: found.steps, y: rows, colours: found.signed ? signed() : SQUASHED, low: found.signed ? -limit : 0, high: limit,
    title: `${title}${each}${steps}${isReport || !(each || steps) ? "" : "; drag to zoom in"}${each ? "" : "; click a row to colour the text by that unit"}`,
    xaxis: tokenAxis(found.steps, found.tokens, {}, { width }), names: { rows: found.units.map((unit) => `unit ${unit}`), columns: found.steps.map((step) => `step ${step}`) },
    yaxis: { title: { text: "unit" }, autorange: "reversed", tickmode: "array", tickvals: rows.filter((i) => i % every === 0), ticktext: found.units.filter((_, i) => i % every === 0).map(String) },
    hover: "unit %{customdata}, step %{x}: %{z:.4f}", height: Math.min(760, 190 + 12 * Math.max(16, rows.length)), width,
  });
  Plotly.restyle(inner, { customdata: [found.z.map((row, i) => row.map(() => found.units[i]))] });
  inner.dataset.rows = found.z.length;
  if (!each) inner.on("plotly_click", (event) => onrow(found.units[event.points[0].y]));
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

// The text, coloured by the value of one unit.
async function colour(box, { layer, quantity, found, state, first }) {
  const unit = Math.min(Number(state.unit ?? 0), layer.quantities[quantity].units - 1);
  const row = found.units.indexOf(unit);
  let values;
  if (isReport) {  // it contains only the heat map
    if (row < 0 || found.units_each > 1 || found.steps_each > 1) return;
    values = { tokens: found.tokens, values: found.z[row], first: 0, steps: found.tokens.length, largest: found.z[row].reduce((a, b) => Math.max(a, Math.abs(b)), 0), signed: found.signed };
  } else values = await ask("unit", { ...traced(), layer: layer.name, quantity, unit, from: first });
  const most = values.signed ? Math.max(values.largest ?? 1, 1e-9) : 1;
  const most_unit = layer.quantities[quantity].units - 1;
  box.replaceChildren(make("h2", {}, `The text by ${layer.quantities[quantity].title} of unit ${unit}`),
    make("div", { class: "line" },
      number("unit", unit, most_unit, (value) => { remember({ unit: value }); colour(box, { layer, quantity, found, state, first }); }),
      make("span", { class: "quiet" }, values.signed ? `blue: above 0, red: below 0; full colour at ${formatted(most)}` : "blue: 1, none: 0")),
    tokenStrip(values.tokens, { colour: (i) => tint(values.values[i] === null ? null : values.values[i] / most), about: (i) => `step ${values.first + i}: ${formatted(values.values[i])}`, first: values.first, onpick: (i) => change({ view: "step", step: values.first + i, unit, layer: layer.name }) }));
  const pages = pager(values.first, values.tokens.length, values.steps, (next) => colour(box, { layer, quantity, found, state, first: next }));
  if (pages) box.append(pages);
}

function activations(place, state, layer, quantity) {
  const most = layer.quantities[quantity].units - 1;
  const long = make("textarea", { id: "long-text", rows: 3, placeholder: "a longer text; empty: the input above", "aria-label": "longer text", oninput: () => { longText = long.value; } });
  long.value = longText;
  const file = make("input", { type: "file", "aria-label": "a file", onchange: async () => { longText = long.value = await file.files[0].text(); } });
  const table = make("div", { id: "places" });
  const look = async () => {
    const query = { ...traced(), layer: layer.name, quantity, unit: state.unit ?? "0" };
    if (long.value) query.text = long.value;
    try {
      const found = await ask("places", query);
      const row = (one) => make("tr", {}, make("td", {}, formatted(one.value)), make("td", {}, String(one.step)),
        make("td", { class: "equation" }, one.before, make("mark", {}, one.token), one.after));
      table.replaceChildren(make("h2", {}, "most"), make("table", {}, ...found.most.map(row)), make("h2", {}, "least"), make("table", {}, ...found.least.map(row)));
    } catch (problem) { table.replaceChildren(make("p", { class: "problem" }, problem.message)); }
  };
  place.append(make("h2", {}, "Places where a unit is most active"), make("div", { class: "line", id: "places-form" },
    number("unit", state.unit ?? 0, most, (value) => { remember({ unit: value }); }),
    make("label", {}, "text from a file ", file), make("button", { type: "button", id: "find-places", onclick: look }, "Find")), long, make("div", { class: "scroll" }, table));
}
