// Training runs: curves, gradient norms with clipping marked, samples; drawn again while a run goes on.

import { choice, make } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change } from "unrolled/state";
import { curves } from "unrolled/plot";

const SECONDS = 5;
let timer = null;

export default {
  title: "Training",
  help: "Curves, gradient norms and samples of the runs",
  needsInput: false,
  reason: (overview, about) => (about.models.some((model) => model.run) ? null : "These are model files, not run folders."),
  async show(place, { state }) {
    clearTimeout(timer);
    const runs = (await ask("runs")).runs;
    const names = [...new Set(Object.values(runs).flatMap((run) => Object.keys(run.columns)))];
    const chosen = names.includes(state.metric) ? state.metric : null;
    const metrics = chosen ? [chosen] : names.filter((name) => !["epoch", "tokens", "clipped", "lr", "grad_norm_max"].includes(name)).slice(0, 4);
    place.append(make("div", { class: "line" }, choice("number", [["", "the first few"], ...names], chosen ?? "", (value) => change({ metric: value }))));
    const x = Object.fromEntries(Object.entries(runs).map(([name, run]) => [name, run.step]));
    for (const metric of metrics) {
      const series = Object.fromEntries(Object.entries(runs).filter(([, run]) => run.columns[metric]).map(([name, run]) => [name, run.columns[metric]]));
      curves(place, series, { title: metric, x, xaxis: { title: { text: "updates" } }, yaxis: {} });
    }
    for (const [name, run] of Object.entries(runs)) norms(place, name, run);
    for (const [name, run] of Object.entries(runs)) {
      if (!run.samples.length) continue;
      const [step, texts] = run.samples[Math.min(Number(state.sample ?? run.samples.length - 1), run.samples.length - 1)];
      place.append(make("h2", {}, `${name}, what it did after ${step} updates`),
        choice("after", run.samples.map(([s], i) => [String(i), String(s)]), String(state.sample ?? run.samples.length - 1), (value) => change({ sample: value })),
        ...texts.slice(0, 5).map((text) => make("pre", {}, text)));
    }
    if (!isReport) watch(size(runs));
  },
};

function size(runs) { return JSON.stringify(Object.values(runs).map((run) => run.step.length)); }

// Draws again when a run has got further, as long as the view is open.
function watch(before) {
  timer = setTimeout(async () => {
    if (new URLSearchParams(location.hash.slice(1)).get("view") !== "runs") return;
    const now = await ask("runs").then((found) => size(found.runs)).catch(() => before);
    if (now !== before) change({});
    else watch(before);
  }, 1000 * SECONDS);
}

function norms(place, name, run) {
  if (!Object.keys(run.grad_norms).length) return;
  const x = Object.fromEntries(Object.keys(run.grad_norms).map((layer) => [layer, run.step]));
  const clipped = run.columns.clipped ?? [];
  const shapes = run.step.filter((_, i) => clipped[i] > 0).map((step) => ({ type: "line", x0: step, x1: step, yref: "paper", y0: 0, y1: 1, line: { color: "#d55e00", width: 1, dash: "dot" } }));
  curves(place, run.grad_norms, {
    title: `${name}: gradient norms by layer; dotted: updates were clipped since the evaluation before`, x, shapes, xaxis: { title: { text: "updates" } }, yaxis: { type: "log", exponentformat: "power" }, height: 320,
  });
}
