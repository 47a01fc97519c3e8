// The beam as a tree that grows step by step.

import { make } from "unrolled/elements";
import { ask } from "unrolled/source";
import { change, traced } from "unrolled/state";
import { draw } from "unrolled/plot";

const COLOURS = { winner: "#d55e00", kept: "#0072b2", ended: "#009e73", cut: "#cc79a7", pruned: "#a8a8a8" };

export default {
  title: "Search",
  help: "The beam as a tree",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("beams") ? null : overview.missing.beams ?? "There is no search."),
  async show(place, { state }) {
    const found = await ask("beams", traced());
    const last = Math.max(...found.nodes.map((node) => node.step));
    const until = Math.min(Number(state.until ?? last), last);
    const slider = make("input", { type: "range", min: 1, max: last, value: until, id: "until", onchange: () => change({ until: slider.value }) });
    place.append(make("div", { class: "line" }, make("label", {}, `grown until step ${until} `, slider)));
    tree(place, found.nodes, until, last);
    const rows = found.outputs.map(([text, score, log], i) => make("tr", {}, make("td", {}, String(i + 1)), make("td", {}, text), make("td", {}, String(score)), make("td", {}, String(log))));
    place.append(make("h2", {}, "Outputs"), make("div", { class: "scroll" }, make("table", { id: "outputs" },
      make("tr", {}, ...["", "output", "score", "log P"].map((name) => make("th", {}, name))), ...rows)));
  },
};

function tree(place, nodes, until, last) {
  const edges = {}, traces = [];
  const root = nodes.filter((node) => node.parent < 0).reduce((sum, node, _, all) => sum + node.height / all.length, 0);
  const labels = [];
  nodes.forEach((node) => {
    if (node.step > until) return;
    const from = node.parent < 0 ? { step: 0, height: root } : nodes[node.parent];
    const edge = edges[node.fate] ??= { x: [], y: [] };
    edge.x.push(from.step, node.step, null);
    edge.y.push(from.height, node.height, null);
    labels.push({ x: node.step - 0.42, y: from.height + (node.height - from.height) * 0.58, text: node.edge.toFixed(2), showarrow: false, font: { size: 9, color: "#555" }, bgcolor: "#fff" });
  });
  for (const fate of ["pruned", "kept", "cut", "ended", "winner"]) {
    if (edges[fate]) traces.push({ type: "scatter", mode: "lines", ...edges[fate], line: { color: COLOURS[fate], width: fate === "winner" ? 3.5 : 1.2 }, hoverinfo: "skip", name: fate });
  }
  const shown = nodes.filter((node) => node.step <= until);
  traces.push({
    type: "scatter", mode: "markers+text", x: shown.map((n) => n.step), y: shown.map((n) => n.height), text: shown.map((n) => n.token), textposition: "top center", showlegend: false,
    marker: { size: 8, color: shown.map((n) => COLOURS[n.fate]) }, textfont: { size: 12 },
    hovertemplate: shown.map((n) => `${n.token}: log P of this token ${n.edge}, of the whole path ${n.log_prob}; ${n.fate}<extra></extra>`),
  });
  const leaves = Math.max(...nodes.map((node) => node.height)) + 1;
  draw(place, traces, {
    annotations: shown.length <= 150 ? labels : [], legend: { orientation: "h", y: 1.12 },
    xaxis: { title: { text: "step" }, range: [-0.3, last + 0.7], dtick: 1, zeroline: false }, yaxis: { visible: false, autorange: "reversed" },
  }, Math.min(1600, 150 + 30 * leaves), Math.min(4000, 90 * last));
}
