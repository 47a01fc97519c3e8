// The view of a tagger: a box for a text, and its words with their tags.

import { make } from "./elements.js";
import { answering, percent, textBox } from "./page.js";
import { partsOf } from "./spans.js";

const COLOURS = 8;

export function show(place, model) {
  const box = textBox("Text", "Write or paste a sentence.");
  const answer = make("section", { id: "answer", "aria-live": "polite" });
  const kinds = new Map(); // the colour of each kind of tag
  const { ask, status } = answering(async () => {
    const list = make("ol", { class: "chips" });
    for (const { word, tag, probability } of await model.answer(box.value)) {
      const kind = model.scheme ? partsOf(tag)[1] || partsOf(tag)[0] : tag;
      const plain = model.scheme && kind === "O";
      if (!plain && !kinds.has(kind)) kinds.set(kind, kinds.size % COLOURS);
      list.append(make("li", { class: plain ? "plain" : `kind-${kinds.get(kind)}`, title: `${tag}: ${percent(probability)}` },
        make("span", { class: "chip" }, word), make("small", { class: "tag" }, tag), make("small", {}, percent(probability))));
    }
    answer.replaceChildren(list);
  });
  box.addEventListener("input", ask);
  place.append(box.labelled, answer, status);
  box.focus();
  ask();
}
