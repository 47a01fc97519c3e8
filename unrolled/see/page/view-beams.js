// A search as a tree that grows by step, or, in CTC, by frame.

import { formatted, largest, make } from "unrolled/elements";
import { ask } from "unrolled/source";
import { remember, traced } from "unrolled/state";
import { draw } from "unrolled/plot";
import { back, colours, faint, ink } from "unrolled/theme";

function shades() { const all = colours(); return { winner: all[1], kept: all[0], ended: all[2], cut: all[3], pruned: faint() }; }
const ORDER = ["pruned", "kept", "cut", "ended", "winner"];
const MOST_NUMBERS = 150;
let timer = null;

export default {
  title: "Search",
  help: "The search as a tree",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("beams") ? null : overview.missing.beams ?? "This model has no search."),
  async show(place, { state }) {
    const found = await ask("beams", traced());
    const caption = make("span"), slider = make("input", { type: "range", min: 1, max: found.steps, id: "until", oninput: () => grow(Number(slider.value)) });
    const play = make("button", { type: "button", id: "play", onclick: () => playing(slider, found.steps, grow) }, "play");
    const charts = make("div"), held = make("div");
    let chart;
    const grow = (until) => {
      slider.value = until;
      remember({ until: until === found.steps ? "" : until });
      caption.textContent = found.frames ? `held after frame ${until} ` : `up to step ${until} `;
      chart = tree(charts, found, until, chart);
      if (found.frames) live(held, found.nodes, until);
    };
    place.append(make("div", { class: "line" }, make("label", {}, caption, slider), play), charts);
    if (found.frames) {
      place.append(make("p", { class: "quiet" }, "Each token extends the one to its left, at the frame where its prefix appeared. "
        + "Bands: frames that held it. Full circles: held now, with their shares of the held probability; hollow circles: not held."), held);
    }
    grow(Math.min(Number(state.until ?? found.steps), found.steps));
    const rows = found.outputs.map(([text, score, log], i) => make("tr", {}, make("td", {}, String(i + 1)), make("td", {}, text), make("td", {}, String(score)), make("td", {}, String(log))));
    place.append(make("h2", {}, "Outputs"), make("div", { class: "scroll" }, make("table", { id: "outputs" },
      make("tr", {}, ...["", "output", "score", "log P"].map((name) => make("th", {}, name))), ...rows)));
  },
};

// Plays the tree step by step while it is visible.
function playing(slider, steps, grow) {
  clearInterval(timer);
  let until = 0;
  timer = setInterval(() => {
    if (!slider.isConnected || until >= steps) clearInterval(timer);
    else grow(++until);
  }, Math.max(60, Math.min(600, 12000 / steps)));
}

// The share of a node's prefix after a frame; 0 if it is not held, null if there are no shares.
function share(node, frame) { return node.shares.length ? node.shares[frame - node.step] ?? 0 : null; }

function text(nodes, node) { return (node.parent < 0 ? "" : text(nodes, nodes[node.parent])) + node.token; }

function live(place, nodes, until) {
  const held = nodes.filter((node) => share(node, until) > 0).sort((a, b) => share(b, until) - share(a, until));
  const rows = held.map((node) => make("tr", {}, make("td", {}, share(node, until).toFixed(4)), make("td", { class: "equation" }, text(nodes, node))));
  place.replaceChildren(make("h2", {}, `Held after frame ${until}`), rows.length ? make("div", { class: "scroll" }, make("table", { id: "held" }, ...rows)) : make("p", { id: "held" }, "Nothing yet."));
}

function tree(place, { nodes, frames, steps }, until, again) {
  const root = nodes.filter((node) => node.parent < 0).reduce((sum, node, _, all) => sum + node.height / all.length, 0);
  const shown = nodes.filter((node) => node.step <= until);
  const edges = {}, bands = {}, numbers = [], COLOURS = shades();
  for (const node of shown) {
    const from = node.parent < 0 ? { step: 0, height: root } : nodes[node.parent];
    const edge = edges[node.fate] ??= { x: [], y: [] };
    if (frames) {  // long straight edges would cross other tokens
      edge.x.push(from.step, from.step, node.step, null);
      edge.y.push(from.height, node.height, node.height, null);
      const band = bands[node.fate] ??= { x: [], y: [] };
      band.x.push(node.step, Math.min(until, node.step + node.shares.length - 1), null);
      band.y.push(node.height, node.height, null);
    } else {
      edge.x.push(from.step, node.step, null);
      edge.y.push(from.height, node.height, null);
    }
    const number = { showarrow: false, font: { size: 10, color: ink() }, bgcolor: back() };
    if (!frames) numbers.push({ ...number, x: node.step - 0.42, y: from.height + (node.height - from.height) * 0.58, text: formatted(node.edge, 2) });
    else if (share(node, until) > 0) numbers.push({ ...number, x: node.step, y: node.height, yshift: -12, text: share(node, until).toFixed(2) });
  }
  const lines = ORDER.filter((fate) => edges[fate]).flatMap((fate) => [
    ...(frames ? [{ type: "scatter", mode: "lines", ...bands[fate], line: { color: COLOURS[fate], width: 9 }, opacity: 0.25, hoverinfo: "skip", showlegend: false }] : []),
    { type: "scatter", mode: "lines", ...edges[fate], line: { color: COLOURS[fate], width: fate === "winner" ? 3.5 : 1.2 }, hoverinfo: "skip", name: fate },
  ]);
  const leaves = largest(nodes.map((node) => node.height), 0) + 1;
  return draw(place, [...lines, markers(nodes, shown, frames, until)], {
    annotations: shown.length <= MOST_NUMBERS ? numbers : [], legend: { orientation: "h", y: 1, yanchor: "bottom" },
    xaxis: { title: { text: frames ? "frames read" : "step" }, range: [-0.01 * steps - 0.3, 1.01 * steps + 0.7], zeroline: false, ...(frames ? {} : { dtick: 1 }) },
    yaxis: { visible: false, range: [leaves - 0.4, -0.9] }, about: `The search tree with ${shown.length} nodes after ${frames ? "frame" : "step"} ${until}; outputs are listed below`,
  }, Math.min(1600, 150 + 30 * leaves), Math.min(4000, frames ? 8 * steps : 90 * steps), again);
}

function markers(nodes, shown, frames, until) {
  const about = (node) => (frames
    ? `${text(nodes, node)}: share ${share(node, until)} after frame ${until}, ${node.edge} at its best; held from ${node.step} to ${node.step + node.shares.length - 1}; ${node.fate}`
    : `${node.token}: log P of this token ${node.edge}, of the whole path ${node.log_prob}; ${node.fate}`);
  return {
    type: "scatter", mode: "markers+text", x: shown.map((n) => n.step), y: shown.map((n) => n.height), text: shown.map((n) => n.token), textposition: "top center", showlegend: false,
    marker: { size: 8, color: shown.map((n) => shades()[n.fate]), symbol: shown.map((n) => (share(n, until) === 0 ? "circle-open" : "circle")) }, textfont: { size: 12 },
    hovertemplate: shown.map((n) => `${about(n)}<extra></extra>`),
  };
}
