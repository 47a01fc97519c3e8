// Embeddings: neighbours, sums of words, and a map of words or sentences.

import { make } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change } from "unrolled/state";
import { COLOURS, draw } from "unrolled/plot";

export default {
  title: "Embeddings",
  help: "Neighbours and sums of words, a map of words or sentences",
  needsInput: false,
  reason: () => null,
  async show(place, { model, state }) {
    const table = make("div", { id: "nearest" }), map = make("div", { id: "map" });
    if (!isReport) {
      const words = make("input", { id: "words", value: state.words ?? "", placeholder: "king - man + woman" });
      place.append(make("form", { class: "line", onsubmit: (event) => { event.preventDefault(); change({ words: words.value }); } },
        make("label", {}, "words ", words), make("button", { type: "submit" }, "Nearest")));
    }
    place.append(table);
    if (state.words && !isReport) await answer(table, "words", { model: model.name, words: state.words }, (found) =>
      make("table", {}, ...found.nearest.map(([word, cosine]) => make("tr", {}, make("td", {}, word), make("td", {}, cosine.toFixed(4))))));
    if (!isReport) {
      const lines = make("textarea", { id: "lines", rows: 3, placeholder: "sentences, one on a line, with a label and a tab before each if you like; empty: a map of words" });
      lines.value = state.lines ?? "";
      place.append(make("h2", {}, "A map"), make("form", { class: "line", onsubmit: (event) => { event.preventDefault(); change({ lines: lines.value }); } },
        make("label", { class: "wide" }, "sentences ", lines), make("button", { type: "submit" }, "Map")));
    }
    place.append(map);
    await answer(map, "map", { model: model.name, lines: state.lines }, (found) => { points(map, found); return null; });
  },
};

async function answer(box, kind, query, shown) {
  try {
    const element = shown(await ask(kind, query));
    if (element) box.append(element);
  } catch (problem) { box.append(make("p", { class: "problem" }, problem.message)); }
}

// The points, the first ones first, whose names have room on the map.
function spaced({ x, y, names }) {
  const width = (Math.max(...x) - Math.min(...x)) / 1000 || 1, height = (Math.max(...y) - Math.min(...y)) / 460 || 1;  // of a pixel
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
      textposition: "top center", textfont: { size: 10 }, marker: { size: 8, color: COLOURS[i % COLOURS.length], symbol: i % 8 }, hovertemplate: "%{customdata}<extra></extra>",
    };
  });
  draw(box, traces, { title: `${found.names.length} vectors on the plane of their two largest variances${found.names.length > shown.size ? "; point at one for its name" : ""}`, xaxis: { zeroline: false }, yaxis: { zeroline: false }, showlegend: labels.length > 1 }, 560);
}
