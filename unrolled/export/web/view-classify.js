// The view of a classifier: a box for a text, and a bar for each label.

import { top } from "./arrays.js";
import { make } from "./elements.js";
import { answering, bars, textBox } from "./page.js";

const MOST_BARS = 20;

export function show(place, model) {
  const box = textBox("Text", "Write or paste a text.");
  const answer = make("section", { id: "answer", "aria-live": "polite" });
  const { ask, status } = answering(async () => {
    const found = await model.answer(box.value);
    const parts = found.value === undefined ? labelled(found, model) : [make("p", { class: "said" }, shown(found.value))];
    if (!box.value.trim()) parts.unshift(make("p", { class: "quiet" }, "The box is empty: this only reflects how common the answers were in training."));
    answer.replaceChildren(...parts);
  });
  box.addEventListener("input", ask);
  place.append(box.labelled, answer, status);
  box.focus();
  ask();
}

function labelled({ labels, probabilities }, model) {
  const order = top(probabilities, MOST_BARS);
  const rows = order.map((place) => ({ name: model.labels[place], share: probabilities[place], chosen: labels.includes(model.labels[place]) }));
  const rest = model.labels.length - rows.length;
  return [
    make("p", { class: "said" }, labels.join(", ") || "no label"),
    bars(rows),
    rest > 0 ? make("p", { class: "quiet" }, `and ${rest} less likely labels`) : null,
  ].filter((part) => part !== null);
}

function shown(value) { return Number(value.toPrecision(6)).toString().replace("-", "−"); }
