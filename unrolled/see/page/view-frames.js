// CTC: posteriors over time under what was heard or seen, spikes, blanks.

import { make } from "unrolled/elements";
import { ask } from "unrolled/source";
import { change, traced } from "unrolled/state";
import { FLOW, INK, SQUASHED, curves, heat, tokenAxis } from "unrolled/plot";

export default {
  title: "Frames",
  help: "CTC posteriors over time",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("frames") ? null : overview.missing.frames ?? `A model of ${overview.task} does not align frames with labels.`),
  async show(place) {
    const found = await ask("frames", traced());
    const steps = Object.values(found.curves)[0].length, unit = found.end / steps;
    const x = Array.from({ length: steps }, (_, t) => (t + 0.5) * unit);
    const axis = { title: { text: found.unit }, range: [0, steps * unit] };
    if (found.picture) heat(place, { z: found.picture, colours: found.kind === "line" ? INK : FLOW, scale: false, title: "", xaxis: { visible: false }, yaxis: { visible: false }, hover: "%{z}", height: 180 });
    const inner = curves(place, found.curves, { title: "Posteriors", x, xaxis: axis, yaxis: { range: [0, 1.1] }, height: 380, marks: false });
    Plotly.relayout(inner, { annotations: found.spikes.map(([t, label, p]) => ({ x: (t + 0.5) * unit, y: p, text: label, showarrow: false, yshift: 10 })) });
    lattice(place, found.lattice, found.states, found.blank);
    place.append(make("p", { id: "spikes" }, `Spikes: ${found.spikes.map(([t, label]) => `${label} at ${t}`).join(", ")}`),
      make("p", {}, "What a search holds after each frame, as a tree: ", make("button", { type: "button", onclick: () => change({ view: "beams" }) }, "Search")));
  },
};

function lattice(place, z, names, blank) {
  if (!z) return;
  const rows = names.map((_, i) => i);
  heat(place, {
    z, x: z[0].map((_, t) => t), y: rows, colours: SQUASHED, low: 0, high: 1, title: "The lattice: which state the path to the text is in", bar: "probability",
    xaxis: { title: { text: "frame" } }, yaxis: tokenAxis(rows, names.map((name) => (name === blank ? "·" : name)), { autorange: "reversed", tickangle: 0 }, 60),
    hover: "frame %{x}, row %{y}: %{z:.4f}", height: Math.min(900, 150 + 16 * Math.max(6, rows.length)),
  });
}
