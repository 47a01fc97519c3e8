// Training runs: curves, gradient norms with clipping marked, samples; updated while a run continues.

import { choice, make } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change } from "unrolled/state";
import { curves, logAxis } from "unrolled/plot";
import { colours, ink } from "unrolled/theme";

const SECONDS = 5;
const FEW = 60;  // up to this many clipped updates have large markers
const NOT_FIRST = ["epoch", "tokens", "clipped", "lr", "grad_norm_max"];
const updates = () => ({ title: { text: "updates" }, zeroline: false });  // a new object each time, because plotly modifies it
let timer = null;

export default {
  title: "Training",
  help: "Curves, gradient norms and samples of the runs",
  needsInput: false,
  reason: (overview, about) => (about.models.some((model) => model.run) ? null : "These are model files, not run folders."),
  async show(place, { state }) {
    clearTimeout(timer);
    const { runs } = await ask("runs");
    const names = numbers(runs);
    const chosen = names.includes(state.metric) ? state.metric : null;
    place.append(make("div", { class: "line" }, choice("metric", [["", "the first few"], ...names], chosen ?? "", (value) => change({ metric: value }))));
    const charts = draw(place, runs, chosen);
    const texts = make("div");
    place.append(texts);
    samples(texts, runs, state);
    if (!isReport) watch(runs, (now) => { draw(place, now, chosen, charts); samples(texts, now, state); });
  },
};

function numbers(runs) { return [...new Set(Object.values(runs).flatMap((run) => Object.keys(run.columns)))]; }

// All charts by name; those in `charts` are redrawn in place.
function draw(place, runs, chosen, charts = {}) {
  const x = Object.fromEntries(Object.entries(runs).map(([name, run]) => [name, run.step]));
  const chart = (key, series, options) => { charts[key] = curves(place, series, { ...options, again: charts[key] }); };
  for (const metric of chosen ? [chosen] : numbers(runs).filter((name) => !NOT_FIRST.includes(name)).slice(0, 4)) {
    const series = Object.fromEntries(Object.entries(runs).filter(([, run]) => run.columns[metric]).map(([name, run]) => [name, run.columns[metric]]));
    chart(metric, series, { title: metric, x, xaxis: updates(), yaxis: {} });
  }
  const going = Object.entries(runs).filter(([, run]) => run.updates);
  if (!chosen && going.length) {
    const steps = Object.fromEntries(going.map(([name, run]) => [name, run.updates.step]));
    chart("loss of every update", Object.fromEntries(going.map(([name, run]) => [name, run.updates.loss])), {
      title: "loss of every update", x: steps, xaxis: updates(), yaxis: {}, marks: false,
    });
  }
  for (const [name, run] of going) chart(`norms of ${name}`, run.updates.layers, norms(name, run.updates));
  return charts;
}

// The norm of every layer before clipping, the total norm, and the clipped updates.
function norms(name, made) {
  const CLIPPED = colours()[1], ALL = ink();
  const at = (values) => made.clipped.map((i) => values[i]);
  const extra = [
    { type: "scatter", mode: "lines", name: "total", x: made.step, y: made.norm, line: { color: ALL, width: 1.8 }, hovertemplate: "total: %{y:.4g}<extra>%{x}</extra>" },
    { type: "scatter", mode: "markers", name: "clipped", x: at(made.step), y: at(made.norm), marker: { color: CLIPPED, size: made.clipped.length > FEW ? 4 : 7, symbol: "triangle-down" }, hovertemplate: "clipped at %{y:.4g}<extra>%{x}</extra>" },
  ];
  const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: made.limit, y1: made.limit, line: { color: CLIPPED, width: 1, dash: "dash" } };
  const each = made.each > 1 ? `, maximum over every ${made.each} updates` : "";
  const how = made.limit == null ? "" : `; clip_norm ${made.limit}`;
  return {
    title: `${name}: gradient norms by layer before clipping${each}${how}; ${made.clipped_in_all} of ${made.made} updates clipped`,
    x: made.step, extra, shapes: made.limit == null ? [] : [line], marks: false, height: 460, palette: colours().filter((_, i) => i !== 1 && i !== 6),
    xaxis: updates(), yaxis: logAxis([...Object.values(made.layers), made.norm]),
  };
}

function samples(place, runs, state) {
  place.replaceChildren();
  for (const [name, run] of Object.entries(runs)) {
    if (!run.samples.length) continue;
    const last = run.samples.length - 1, number = Math.min(Number(state.sample ?? last), last);
    const [step, texts] = run.samples[number];
    place.append(make("h2", {}, `${name}, samples after ${step} updates`),
      choice("after", run.samples.map(([s], i) => [String(i), String(s)]), String(number), (value) => change({ sample: value })),
      ...texts.slice(0, 5).map((text) => make("pre", {}, text)));
  }
}

// Redraws while the view is open: in place, or completely if there are new charts.
function watch(before, drawn) {
  timer = setTimeout(async () => {
    if (new URLSearchParams(location.hash.slice(1)).get("view") !== "runs") return;
    const now = await ask("runs").then((found) => found.runs).catch(() => before);
    if (parts(now) !== parts(before)) { change({}); return; }
    if (far(now) !== far(before)) drawn(now);
    watch(now, drawn);
  }, 1000 * SECONDS);
}

function far(runs) { return JSON.stringify(Object.values(runs).map((run) => [run.step.length, run.updates?.made])); }

function parts(runs) { return JSON.stringify(Object.values(runs).map((run) => [Object.keys(run.columns), run.updates !== null, run.samples.length > 0])); }
