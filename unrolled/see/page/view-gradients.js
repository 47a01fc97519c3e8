// How far back each loss reaches, each step's Jacobian, and its share of the weights' gradient.

import { choice, make } from "unrolled/elements";
import { ask } from "unrolled/source";
import { change, traced } from "unrolled/state";
import { FLOW, curves, heat, tokenAxis } from "unrolled/plot";

export default {
  title: "Gradients",
  help: "‖∂L_t/∂h_j‖ for all t and j, by distance, and what each step does to it",
  needsInput: true,
  reason: () => null,
  async show(place, { overview, about, state }) {
    const names = [...overview.layers.map((one) => one.name), ...overview.probes];
    const layer = names.includes(state.layer) ? state.layer : names[0];
    const many = about.models.length > 1;
    const all = many && state.all !== "no";
    place.append(make("div", { class: "line" },
      choice("of", names.map((name) => [name, overview.probes.includes(name) ? `${name} vectors` : name]), layer, (value) => change({ layer: value })),
      many ? choice("models", [["yes", "all, side by side"], ["no", "this one"]], all ? "yes" : "no", (value) => change({ all: value })) : null));
    const found = (await ask("gradients", { ...traced(), layer, all: all ? "yes" : "" })).models;
    const tables = Object.values(found).flatMap((one) => one.z.flat()).filter((value) => value !== null);
    const low = Math.max(Math.min(...tables), Math.max(...tables) - 12), high = Math.max(...tables);
    curves(place, Object.fromEntries(Object.entries(found).map(([name, one]) => [name, one.distance.map((v) => (v > 0 ? v : null))])), {
      title: "Mean ‖∂L_t/∂h_j‖ by distance", xaxis: { title: { text: `distance ${Object.values(found)[0].distance_of}` } }, yaxis: { type: "log", exponentformat: "power" }, height: 320,
    });
    for (const [name, one] of Object.entries(found)) {
      const rows = one.rows.map((_, i) => i);
      heat(place, {
        z: one.z, x: one.steps, y: rows, colours: FLOW, low, high, bar: "log10 of the norm",
        title: `${name}: every loss to every ${one.of} of ${one.layer}${one.sampled ? `, ${rows.length} losses of more` : ""}`,
        xaxis: tokenAxis(one.steps, one.tokens, { title: { text: `${one.of} j` } }), yaxis: tokenAxis(rows, one.losses, { title: { text: "loss t" }, autorange: "reversed", tickangle: 0 }, 60),
        hover: "loss %{y}, step %{x}: 10^%{z:.2f}", height: Math.min(1000, 190 + 13 * Math.max(8, rows.length)), width: Math.min(3000, 12 * one.steps.length),
      });
    }
    if (!overview.layers.some((one) => one.name === layer)) return;
    const flow = await ask("flow", { ...traced(), layer });
    const places = flow.singular.map((_, i) => i);
    const axis = tokenAxis(places.slice(0, flow.tokens.length), flow.tokens), width = Math.min(4000, 9 * places.length);
    curves(place, { "largest singular value": flow.singular }, {
      title: `Largest singular value of ∂state_t/∂state_{t−1}, ${layer}: above 1 a step can stretch gradients`, xaxis: axis, yaxis: { rangemode: "tozero" }, width,
      shapes: [{ type: "line", x0: 0, x1: 1, xref: "paper", y0: 1, y1: 1, line: { dash: "dash", color: "#777" } }],
    });
    const shares = Object.fromEntries(Object.entries(flow.shares).filter(([name]) => name.startsWith("weight")).map(([name, y]) => [name, y.map((v) => (v > 0 ? v : null))]));
    curves(place, shares, { title: "Each step's own share of the shared weights' gradient, ‖∇_{W(t)} L‖", xaxis: axis, yaxis: { type: "log", exponentformat: "power" }, height: 320, width });
  },
};
