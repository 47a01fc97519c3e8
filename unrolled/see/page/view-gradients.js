// Gradients of each loss by step, each step's Jacobian, and its share of the weights' gradient.

import { choice, largest, make } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change, traced } from "unrolled/state";
import { curves, heat, logAxis, tokenAxis } from "unrolled/plot";
import { FLOW } from "unrolled/theme";

const ZERO = "every gradient is exactly 0";

export default {
  title: "Gradients",
  help: "‖∂L_t/∂h_j‖ for all t and j, by distance, and the Jacobian of each step",
  needsInput: true,
  reason: () => null,
  async show(place, { overview, about, state }) {
    const names = [...overview.layers.map((one) => one.name), ...overview.probes];
    const layer = names.includes(state.layer) ? state.layer : names[0];
    const many = about.models.length > 1;
    const all = many && state.all !== "no";
    place.append(make("div", { class: "line" },
      choice("of", names.map((name) => [name, overview.probes.includes(name) ? `${name} vectors` : name]), layer, (value) => change({ layer: value })),
      many ? choice("models", [["yes", "all, side by side"], ["no", "this one"]], all ? "yes" : "no", (value) => change({ all: value })) : null,
      overview.follows === "answer" && overview.truth !== null ? make("span", { class: "quiet" }, "Losses are those of the answer, not the truth.") : null));
    const found = (await ask("gradients", { ...traced(), layer, all: all ? "yes" : "", follow: state.follow })).models;
    const first = Object.values(found)[0];
    sampled(place, first.rows.length, first.losses_in_all, "losses");
    byDistance(place, found);
    matrices(place, found);
    if (!overview.layers.some((one) => one.name === layer)) return;
    const flow = await ask("flow", { ...traced(), layer, follow: state.follow });
    sampled(place, flow.steps.length, flow.steps_in_all, "steps");
    const width = Math.min(4000, 9 * flow.steps.length), axis = () => tokenAxis(flow.steps, flow.tokens, {}, { width });
    curves(place, { "largest singular value": flow.singular }, {
      title: `Largest singular value of ∂state_t/∂state_{${layer.endsWith("_reverse") ? "t+1" : "t−1"}}, ${layer}: above 1 a step can amplify gradients`, x: flow.steps, xaxis: axis(), yaxis: { rangemode: "tozero" }, width,
      shapes: [{ type: "line", x0: 0, x1: 1, xref: "paper", y0: 1, y1: 1, line: { dash: "dash", color: "#777" } }],
    });
    const weights = Object.entries(flow.shares).filter(([name]) => name.startsWith("weight"));
    const shares = Object.fromEntries(weights.map(([name, y]) => [name, y.map((v) => (v > 0 ? v : null))]));
    const still = weights.every(([, y]) => y.every((v) => v === 0)) ? ZERO : undefined;
    curves(place, shares, { title: "Each step's share of the weights' gradient, ‖∇_{W(t)} L‖", x: flow.steps, xaxis: axis(), yaxis: logAxis(Object.values(shares)), height: 320, width, empty: still });
  },
};

// A note on sampling in a long input, with a button for more.
function sampled(place, shown, all, what) {
  if (shown >= all) return;
  place.append(make("p", { class: "note" }, `These are ${shown.toLocaleString("en")} of ${all.toLocaleString("en")} ${what}, evenly spread, to save time. `,
    isReport ? "" : make("button", { type: "button", onclick: () => change({ follow: Math.min(all, 4 * shown) }) }, `Show ${Math.min(all, 4 * shown).toLocaleString("en")}`)));
}

function byDistance(place, found) {
  const series = Object.fromEntries(Object.entries(found).map(([name, one]) => [name, one.distance.map((v) => (v > 0 ? v : null))]));
  const x = Object.fromEntries(Object.entries(found).map(([name, one]) => [name, one.distances]));
  const furthest = largest(Object.values(x).map((places) => places.at(-1)), 0), empty = Object.values(found).every((one) => one.zero) ? ZERO : undefined;
  const ticks = furthest <= 10 ? { dtick: 1 } : {};  // whole steps only
  curves(place, series, { title: "Mean ‖∂L_t/∂h_j‖ by distance", x, empty, xaxis: { title: { text: `distance ${Object.values(found)[0].distance_of}` }, ...ticks }, yaxis: logAxis(Object.values(series)), height: 320 });
}

function matrices(place, found) {
  const values = Object.values(found).flatMap((one) => one.z.flat()).filter((value) => value !== null);
  const high = largest(values, -300), low = Math.max(-largest(values.map((value) => -value), -300), high - 12);
  for (const [name, one] of Object.entries(found)) {
    const rows = one.rows.map((_, i) => i), width = Math.min(3000, 12 * one.steps.length);
    const xaxis = tokenAxis(one.steps, one.tokens, {}, { width });  // without a title, which plotly would draw over the tokens
    const turned = xaxis.tickangle ? 7 * largest(xaxis.ticktext.map((text) => text.length), 0) : 0;  // room for vertical labels
    heat(place, {
      z: one.z, x: one.steps, y: rows, colours: FLOW, low, high, bar: "log10 of the norm",
      title: `${name}: every loss to every ${one.of} j of ${one.layer}, j from left to right`, names: { rows: one.losses.map((loss) => `loss of ${loss}`), columns: one.steps.map((step) => `step ${step}`) },
      xaxis, yaxis: tokenAxis(rows, one.losses, { title: { text: rows.length > 1 ? "loss t" : "" }, autorange: "reversed", tickangle: 0 }, { most: 60 }),
      hover: "loss %{y}, step %{x}: 10^%{z:.2f}", empty: one.zero ? ZERO : undefined, height: turned + (rows.length === 1 ? 220 : Math.min(1000, 220 + 13 * Math.max(8, rows.length))), width,
    });
  }
}
