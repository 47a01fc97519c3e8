// The answer, the truth, and the loss of every token.

import { choice, formatted, largest, make, pager, tokenStrip } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change, traced } from "unrolled/state";
import { curves, tokenAxis } from "unrolled/plot";
import { colours, tint } from "unrolled/theme";

export default {
  title: "Overview",
  help: "The answer and the truth, the loss of every step, and the likeliest predictions",
  needsInput: true,
  reason: () => null,
  async show(place, { overview, model, state }) {
    verdict(place, overview);
    for (const note of overview.notes) place.append(make("p", { class: "note" }, note));
    if (overview.truth !== null && !isReport && model.options.some((option) => option.name === "target")) {
      place.append(make("div", { class: "line" }, choice("losses and gradients of", [["", "the truth"], ["answer", "the answer"]], state["o.target"] === "answer" ? "answer" : "",
        (value) => change({ "o.target": value }))));
    }
    if (overview.compared.length) compared(place, overview);
    for (const [name, one] of Object.entries(overview.forecasts)) forecast(place, name, one);
    if (overview.forecasts_in_all > Object.keys(overview.forecasts).length) {
      place.append(make("p", { class: "quiet" }, `These are ${Object.keys(overview.forecasts).length} of ${overview.forecasts_in_all} forecasts. See trace.forecasts in Python for all.`));
    }
    losses(place, overview);
    if (overview.attributes) await attribution(place);
    hiding(place, overview, model, state);
    for (const [kind, why] of Object.entries(overview.missing)) place.append(make("p", { class: "quiet" }, `No ${kind}: ${why}`));
  },
};

// In words, not by colour alone.
function verdict(place, overview) {
  const known = overview.truth !== null;
  const box = make("dl", { id: "answer", class: `verdict ${overview.right === null ? "" : overview.right ? "right" : "wrong"}` },
    make("dt", {}, overview.task), make("dd", {}, overview.answer || "(nothing)", overview.right === null ? "" : overview.right ? "  ✓ right" : "  ✗ wrong"));
  if (known) box.append(make("dt", {}, "truth"), make("dd", { id: "truth" }, overview.truth));
  place.append(box);
}

const WHOSE = { truth: "of the truth", answer: "of the model's own answer", label: "of the requested label", text: "of the requested text" };

function losses(place, overview) {
  const detail = make("div", { id: "detail", class: "quiet" }, overview.guesses.length ? "Pick a token to see the likeliest predictions there." : "");
  const unit = overview.task === "forecast" ? "" : ", in nats";
  const whose = overview.task === "generate" && overview.follows === "truth" ? "" : ` ${WHOSE[overview.follows]}`;
  if (overview.steps === 1) {
    place.append(make("h2", {}, `Loss${whose}${unit}: ${formatted(overview.losses[0])} for “${overview.losses_of[0]}”${overview.guesses.length && overview.losses[0] !== null ? `, p = ${(100 * Math.exp(-overview.losses[0])).toFixed(1)} %` : ""}`), detail);
    if (overview.guesses.length) expected(detail, overview, 0); else detail.remove();
    return;
  }
  const worst = largest(overview.losses, 1e-9);
  place.append(make("h2", {}, `Loss of each step${whose}${unit}`));
  const pages = pager(overview.first, overview.losses_of.length, overview.steps, (first) => change({ from: first }));
  if (pages) place.append(pages);
  place.append(tokenStrip(overview.losses_of, {
    shade: (i) => overview.losses[i] / worst,
    about: (i) => `step ${overview.first + i}: loss ${formatted(overview.losses[i])}`,
    mark: (i) => (overview.compared[i] && overview.compared[i][1] !== overview.compared[i][2] ? "wrong-token" : ""),
    first: overview.first,
    onpick: (i) => expected(detail, overview, i),
  }), detail);
  const { x, y, tokens, each } = overview.curve, width = Math.min(4000, 12 * tokens.length);
  curves(place, { loss: y }, {
    title: each > 1 ? `Means over ${each.toLocaleString("en")} steps, of ${overview.steps.toLocaleString("en")}` : "", x, width,
    xaxis: tokenAxis(x, tokens, {}, { width }), yaxis: { title: { text: "loss" }, rangemode: "tozero" }, marks: y.length < 500,
  });
}

function expected(detail, overview, i) {
  const guesses = overview.guesses[i] ?? overview.guesses[0];
  if (!guesses) { detail.textContent = `loss ${formatted(overview.losses[i])}`; return; }
  const wanted = overview.losses_of[i].split(", ");
  const rows = guesses.map(([token, chance]) => make("tr", {}, make("td", {}, token), make("td", {}, chance === null ? "–" : `${(100 * chance).toFixed(1)} %`),
    make("td", {}, bar(chance)), make("td", {}, overview.follows === "truth" && wanted.includes(token) ? "← truth" : "")));
  detail.replaceChildren(overview.steps === 1 ? "Likeliest:" : `Step ${overview.first + i}, “${overview.losses_of[i]}”, loss ${formatted(overview.losses[i])}. Likeliest:`, make("table", {}, ...rows));
}

function bar(share) {
  const element = make("div");
  element.style.cssText = `height:0.8em;width:${Math.max(0.06, 10 * (share ?? 0))}rem;background:${colours()[0]}`;
  return element;
}

function compared(place, overview) {
  const wrong = overview.compared.filter(([, truth, answer]) => truth !== answer).length;
  const rows = overview.compared.map(([word, truth, answer]) => make("tr", { class: truth === answer ? "" : "wrong" },
    make("td", { class: "equation" }, word), make("td", {}, truth), make("td", {}, answer), make("td", {}, truth === answer ? "" : "✗")));
  place.append(make("details", { open: rows.length <= 40 }, make("summary", {}, `Tags: ${wrong} of ${rows.length} differ from the truth`),
    make("table", { id: "compared" }, make("tr", {}, ...["word", "truth", "answer", ""].map((name) => make("th", {}, name))), ...rows)));
}

function forecast(place, name, one) {
  const known = one.truth.some((value) => value !== null);
  curves(place, { forecast: one.forecast, ...(known ? { truth: one.truth } : {}) }, {
    title: `${name}: forecasts${known ? " and true values" : "; true values are unknown"}${one.rows.length < one.rows_in_all ? `, the last ${one.rows.length} of ${one.rows_in_all}` : ""}`,
    x: one.rows, xaxis: { title: { text: "row" } }, yaxis: {}, marks: one.rows.length < 200,
  });
}

async function attribution(place) {
  const found = await ask("attribution", traced());
  const most = largest(found.scores.map((score) => (score === null ? null : Math.abs(score))), 1e-9);
  const groups = found.words_each > 1 ? ` In this long text, ${found.words_each} neighbouring words are removed together.` : "";
  place.append(make("h2", {}, `Word attribution for “${found.label}”`),
    make("p", { class: "quiet" }, `log p(${found.label}) with all words minus log p without the word: blue supports the label, red opposes it.${groups}`),
    make("div", { id: "attribution" }, tokenStrip(found.words, { colour: (i) => tint(found.scores[i] / most), about: (i) => formatted(found.scores[i]) })));
  const order = found.words.map((_, i) => i).sort((a, b) => Math.abs(found.scores[b]) - Math.abs(found.scores[a])).slice(0, 8);
  place.append(make("table", { id: "weights" }, ...order.map((i) => make("tr", {}, make("td", {}, found.words[i]), make("td", {}, formatted(found.scores[i]))))));
}

function hiding(place, overview, model, state) {
  const [name, tokens] = Object.entries(overview.inputs)[0] ?? [];
  if (!tokens || isReport || !model.options.some((option) => option.name === "hide")) return;
  const hidden = new Set((state["o.hide"] ?? "").split(",").filter((one) => one !== ""));
  place.append(make("h2", {}, `Pick tokens of the ${name} to hide`), tokenStrip(tokens, {
    hidden: (i) => hidden.has(String(i)),
    pressed: (i) => hidden.has(String(i)),
    onpick: (i) => {
      if (!hidden.delete(String(i))) hidden.add(String(i));
      change({ "o.hide": [...hidden].sort((a, b) => a - b).join(",") });
    },
  }));
}
