// The view of a translator: a box for the source, the best translations, and where each of their tokens looked.

import { make } from "./elements.js";
import { answering, numberField, percent, textBox } from "./page.js";
import { USUAL } from "./translate.js";

const MOST_CELLS = 4000; // of the table of attention

export function show(place, model) {
  const box = textBox("Source", "Write or paste a text to translate.", 3);
  const fields = {
    beam: numberField("beam", "beam", USUAL.beam, { min: 1, max: 100, hint: "hypotheses side by side; 1: always the likeliest token" }),
    nBest: numberField("n-best", "translations", 3, { min: 1, max: 20, hint: "how many are shown, at most as many as the beam is wide" }),
  };
  const button = make("button", { type: "submit", class: "main" }, "Translate");
  const answer = make("section", { id: "answer", "aria-live": "polite" });
  const form = make("form", {}, box.labelled, make("div", { class: "line" }, button, ...Object.values(fields).map((field) => field.labelled)));
  const { ask, status } = answering(async () => {
    const options = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value() ?? USUAL[name]]));
    button.disabled = true;
    try {
      const found = await model.answer(box.value, options);
      answer.replaceChildren(...(found.length ? shown(found) : [make("p", { class: "quiet" }, "Nothing to translate yet.")]));
    } finally {
      button.disabled = false;
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    form.requestSubmit();
  });
  place.append(form, answer, status);
  box.focus();
  ask();
}

function shown(found) {
  const [best, ...others] = found;
  const about = (one) => `log-probability ${one.logProb.toFixed(2).replace("-", "−")}${one.ended ? "" : ", cut at the greatest length"}`;
  const parts = [make("p", { class: "said" }, best.text), make("p", { class: "quiet" }, about(best))];
  if (others.length) {
    parts.push(make("ol", { class: "others", start: 2 }, ...others.map((one) => make("li", {}, `${one.text} `, make("span", { class: "quiet" }, about(one))))));
  }
  if (best.attention && best.sourceTokens.length * best.targetTokens.length <= MOST_CELLS && best.targetTokens.length) parts.push(looked(best));
  return parts;
}

// A table with a row for each token that was written: the darker a cell, the more it looked there.
function looked({ sourceTokens, targetTokens, attention }) {
  const name = (token) => token.replaceAll(" ", "␣");
  const head = make("tr", {}, make("td", {}), ...sourceTokens.map((token) => make("th", { scope: "col" }, name(token))));
  const rows = targetTokens.map((token, place) => make("tr", {}, make("th", { scope: "row" }, name(token)),
    ...attention[place].map((weight) => {
      const cell = make("td", { class: "look", title: percent(weight) }, make("span", { class: "unseen" }, percent(weight)));
      cell.style.setProperty("--weight", weight.toFixed(3));
      return cell;
    })));
  return make("details", { open: true }, make("summary", {}, "Where each token looked"), make("div", { class: "scroll", tabindex: 0 }, make("table", {}, make("caption", { class: "unseen" }, "Attention of each target token to the source tokens"), head, ...rows)));
}
