// Embeddings: neighbours, sums of words, and a map of words or sentences.

import { formatted, largest, make } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change } from "unrolled/state";
import { draw } from "unrolled/plot";
import { colours } from "unrolled/theme";

export default {
  title: "Embeddings",
  help: "Neighbours and sums of words, a map of words or sentences",
  needsInput: false,
  reason: (overview, about, model) => (model.words === null || (model.sentences && !isReport) ? null : model.words),
  async show(place, { model, state }) {
    const table = make("div", { id: "nearest" }), map = make("div", { id: "map" });
    if (!isReport && model.words === null) {
      const words = make("input", { id: "words", value: state.words ?? "", placeholder: "king - man + woman" });
      place.append(make("form", { class: "line", onsubmit: (event) => { event.preventDefault(); change({ words: words.value }); } },
        make("label", {}, "words ", words), make("button", { type: "submit" }, "Nearest")));
    }
    place.append(table);
    if (state.words && !isReport && model.words === null) await answer(table, "words", { model: model.name, words: state.words }, (found) =>
      make("table", {}, ...found.nearest.map(([word, cosine]) => make("tr", {}, make("td", {}, word), make("td", {}, formatted(cosine))))));
    if (!isReport && model.sentences) {
      const lines = make("textarea", { id: "lines", rows: 3, placeholder: `sentences, one per line, optionally after a label and a tab${model.words === null ? "; empty: a map of words" : ""}` });
      lines.value = state.lines ?? "";
      place.append(make("h2", {}, "A map"), make("form", { class: "line", onsubmit: (event) => { event.preventDefault(); change({ lines: lines.value }); } },
        make("label", { class: "wide" }, "sentences ", lines), make("button", { type: "submit" }, "Map")));
    }
    place.append(map);
    if (model.words !== null && !state.lines) { map.append(make("p", { class: "quiet" }, `No map of words: ${model.words}`)); return; }
    await answer(map, "map", { model: model.name, lines: state.lines }, (found) => { points(map, found); return null; });
  },
};

async function answer(box, kind, query, shown) {
  try {
    const element = shown(await ask(kind, query));
    if (element) box.append(element);
  } catch (problem) { box.append(make("p", { class: "problem" }, problem.message)); }
}

// The points whose names have room on the map; earlier ones take precedence.
function spaced({ x, y, names }) {
  const span = (values) => largest(values) + largest(values.map((value) => -value));
  const width = span(x) / 1000 || 1, height = span(y) / 460 || 1;  // of a pixel
  const shown = new Set();
  names.forEach((name, i) => {
    const room = (j) => Math.abs(x[i] - x[j]) > 3.5 * width * Math.min(40, name.length + names[j].length) || Math.abs(y[i] - y[j]) > 14 * height;
    if ([...shown].every(room)) shown.add(i);
  });
  return shown;
}

function points(box, found) {
  const labels = found.labels.length ? [...new Set(found.labels)] : [""];
  const shown = spaced(found);
  const traces = labels.map((label, i) => {
    const rows = found.names.map((_, row) => row).filter((row) => !found.labels.length || found.labels[row] === label);
    return {
      type: "scatter", mode: "markers+text", name: label || "words", x: rows.map((r) => found.x[r]), y: rows.map((r) => found.y[r]),
      text: rows.map((r) => (shown.has(r) ? found.names[r].slice(0, 40) : "")), customdata: rows.map((r) => found.names[r].slice(0, 80)),
      textposition: "top center", textfont: { size: 10 }, marker: { size: 8, color: colours()[i % colours().length], symbol: i % 8 }, hovertemplate: "%{customdata}<extra></extra>",
    };
  });
  draw(box, traces, { title: `${found.names.length} vectors on their first two principal components${found.names.length > shown.size ? "; hover for names" : ""}`, xaxis: { zeroline: false }, yaxis: { zeroline: false }, showlegend: labels.length > 1 }, 560);
}
