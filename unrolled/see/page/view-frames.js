// CTC: the signal, posteriors, spikes and the lattice on one time axis.

import { make } from "unrolled/elements";
import { ask } from "unrolled/source";
import { change, traced } from "unrolled/state";
import { draw, legendOf } from "unrolled/plot";
import { FLOW, INK, SQUASHED, colours, faint, grid, rem } from "unrolled/theme";

export default {
  title: "Frames",
  help: "CTC posteriors over time",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("frames") ? null : overview.missing.frames ?? `A model of ${overview.task} does not align frames with labels.`),
  async show(place, { overview }) {
    const found = await ask("frames", traced());
    charts(place, found, overview);
    place.append(make("p", { id: "spikes" }, `Spikes: ${found.spikes.map(([t, label]) => `${label} at ${t}`).join(", ") || "none"}`),
      make("p", {}, "The prefixes of the search after each frame, as a tree: ", make("button", { type: "button", onclick: () => change({ view: "beams" }) }, "Search")));
  },
};

function charts(place, found, overview) {
  const steps = Object.values(found.curves)[0].length, unit = found.end / steps;
  const x = Array.from({ length: steps }, (_, t) => (t + 0.5) * unit);
  const states = found.states.length, sizes = { picture: found.picture ? 140 : 0, curves: 240, lattice: found.lattice ? Math.min(500, 70 + 15 * Math.max(5, states)) : 0 };
  const gap = 42, all = sizes.picture + sizes.curves + sizes.lattice + 2 * gap;
  const part = (above, size) => [1 - (above + size) / all, 1 - above / all];
  const below = sizes.picture ? sizes.picture + gap / 2 : 0;
  const data = lines(found, x);
  const axis = { title: { text: found.unit }, range: [0, steps * unit], gridcolor: grid(), zeroline: false, anchor: found.lattice ? "y3" : "y" };
  const shown = {
    xaxis: axis, yaxis: { domain: part(below, sizes.curves), range: [0, 1.12], title: { text: "posterior" }, gridcolor: grid() },
    legend: { ...legendOf(data.filter((one) => one.showlegend !== false).length), y: 1.02 }, showlegend: true,
    annotations: found.spikes.map(([t, label, p]) => ({ x: (t + 0.5) * unit, y: p, text: label, showarrow: false, yshift: rem(0.6) })),
  };
  if (found.picture) {
    const columns = found.picture[0].length;
    data.push({ type: "heatmap", z: found.picture, x: Array.from({ length: columns }, (_, i) => ((i + 0.5) * steps * unit) / columns), yaxis: "y2", colorscale: found.kind === "line" ? INK : FLOW, showscale: false, hoverinfo: "skip" });
    shown.yaxis2 = { domain: part(0, sizes.picture), visible: false };
  }
  if (found.lattice) {
    const rows = found.states.map((_, i) => i), every = Math.ceil(states / 60);
    data.push({ type: "heatmap", z: found.lattice, x, y: rows, yaxis: "y3", colorscale: SQUASHED, zmin: 0, zmax: 1, showscale: false, hovertemplate: "%{x}, state %{y}: %{z:.4f}<extra></extra>" });
    shown.yaxis3 = {
      domain: [0, sizes.lattice / all], autorange: "reversed", title: { text: "state" }, tickmode: "array", tickvals: rows.filter((i) => i % every === 0),
      ticktext: rows.filter((i) => i % every === 0).map((i) => (found.states[i] === found.blank ? "·" : found.states[i])), tickfont: { family: "monospace", size: rem(0.7) },
    };
  }
  const whose = overview.follows === "truth" ? "the truth" : overview.follows === "text" ? "the text" : "the answer";
  draw(place, data, {
    title: `${found.picture ? "Input signal and" : "The"} posteriors${found.lattice ? `; below, state probabilities of ${whose}, from 0 (dark) to 1 (bright)` : ""}. Grey: labels outside the alignment`,
    about: `Over ${steps} frames the labels peak in this order: ${found.spikes.map(([t, label, p]) => `${label} at frame ${t} with ${p}`).join(", ") || "none"}`, ...shown,
  }, all + 120, Math.min(4000, 3 * steps));
}

// Labels of the alignment and the blank are coloured; the others are grey, with names on hover.
function lines(found, x) {
  const spoken = new Set([found.blank, ...found.spikes.map(([, label]) => label)]);
  const order = Object.keys(found.curves).sort((a, b) => spoken.has(a) - spoken.has(b));
  let next = 0;
  return order.map((name) => ({
    type: "scatter", mode: "lines", name, x, y: found.curves[name], showlegend: spoken.has(name), hovertemplate: `${name}: %{y:.4g}<extra>%{x:.4g}</extra>`,
    line: { width: spoken.has(name) ? 1.8 : 0.8, color: spoken.has(name) ? colours()[next++ % 8] : faint(), dash: name === found.blank ? "dot" : "solid" },
  }));
}
