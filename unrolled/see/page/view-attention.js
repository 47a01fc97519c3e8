// Attention: one matrix, or a grid of layers × heads with one enlarged; maps over an image.

import { choice, make } from "unrolled/elements";
import { ask } from "unrolled/source";
import { change, traced } from "unrolled/state";
import { heat, tokenAxis } from "unrolled/plot";
import { dark, greys } from "unrolled/theme";

// As in the figures: brightness and grey of regions without attention.
const DARK = 0.12, DUSK = "rgb(70, 70, 70)";

export default {
  title: "Attention",
  help: "Attention weights of each step",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("attention") ? null : overview.missing.attention ?? "This model has no attention."),
  async show(place, { overview, state }) {
    const maps = Object.keys(overview.attention);
    const map = maps.includes(state.map) ? state.map : maps[0];
    const { layers, heads } = overview.attention[map];
    const specials = state.specials ?? "yes";
    const layer = Math.min(Number(state.alayer ?? layers - 1), layers - 1), head = Math.min(Number(state.ahead ?? 0), heads - 1);
    place.append(make("div", { class: "line" },
      choice("map", maps, map, (value) => change({ map: value, alayer: "", ahead: "" })),
      choice("begin and end tokens", [["yes", "shown"], ["no", "hidden"]], specials, (value) => change({ specials: value }))));
    const found = await ask("attention", { ...traced(), map, specials });
    if (layers * heads > 1) {
      const grid = make("div", { class: "heads" });
      grid.style.gridTemplateColumns = `repeat(${heads}, minmax(5rem, 12rem))`;
      found.weights.forEach((row, l) => row.forEach((weights, h) => grid.append(make("button", {
        type: "button", "aria-pressed": l === layer && h === head ? "true" : "false", title: "enlarge", "aria-label": `layer ${l + 1}, head ${h + 1}`,
        onclick: () => change({ alayer: l, ahead: h }),
      }, thumbnail(weights), make("div", { class: "quiet" }, `layer ${l + 1}, head ${h + 1}`)))));
      place.append(make("div", { class: "scroll" }, grid));
    }
    if (found.grid) { await images(place, found, layer, head); return; }
    const rows = found.rows.map((_, i) => i), columns = found.columns.map((_, i) => i);
    const width = 160 + 22 * columns.length;
    heat(place, {
      z: found.weights[layer][head], x: columns, y: rows, colours: greys(), low: 0, high: 1, bar: "attention", below: true, names: { rows: found.rows.map((row) => `row ${row}`), columns: found.columns },
      title: layers * heads > 1 ? `${map}, layer ${layer + 1}, head ${head + 1}` : map,
      xaxis: tokenAxis(columns, found.columns, { side: "top", title: { text: "" } }, { width: Math.max(width, Math.min(240 + 44 * columns.length, innerWidth)) - 160 }), yaxis: tokenAxis(rows, found.rows, { autorange: "reversed", tickangle: 0 }),
      hover: "row %{y} attends to %{x}: %{z:.4f}", height: 200 + 24 * Math.max(4, rows.length), width, most: 240 + 44 * columns.length,
    });
  },
};

function thumbnail(weights) {
  const canvas = make("canvas", { width: weights[0]?.length ?? 1, height: weights.length || 1 });
  const context = canvas.getContext("2d");
  weights.forEach((row, y) => row.forEach((weight, x) => {
    const shade = Math.round(255 * (dark() ? weight : 1 - weight));
    context.fillStyle = `rgb(${shade},${shade},${shade})`;
    context.fillRect(x, y, 1, 1);
  }));
  return canvas;
}

// The image once for each word, bright where the attention is; below it, of hard attention, the region that was read.
async function images(place, found, layer, head) {
  const [down, across] = found.grid;
  const picture = found.image ? await loaded(found.image) : null;
  const width = picture ? picture.width : 16 * across, height = picture ? picture.height : 16 * down;
  const words = make("div", { class: "pictures" });
  if (found.image) words.append(make("figure", { id: "unmasked" }, make("img", { src: found.image, alt: "the image" }), make("figcaption", {}, "the image")));
  found.rows.forEach((word, i) => {
    const weights = found.weights[layer][head][i], most = Math.max(...weights);
    const panels = [map(weights, `attention of “${word}”`)];
    if (found.hard) panels.push(map(weights.map((_, n) => (n === weights.indexOf(most) ? 1 : 0)), `region read for “${word}”`));
    words.append(make("figure", {}, ...panels, make("figcaption", {}, word)));
  });
  if (found.hard) place.append(make("p", { class: "quiet" }, "Above the weights, below the one region that was read."));

  function map(weights, about) {
    const most = Math.max(...weights, 1e-12);
    const light = make("canvas", { width: across, height: down });
    const small = light.getContext("2d");
    weights.forEach((weight, n) => {
      small.fillStyle = `rgba(255, 255, 255, ${DARK + (1 - DARK) * weight / most})`;
      small.fillRect(n % across, Math.floor(n / across), 1, 1);
    });
    const canvas = make("canvas", { width, height, role: "img", "aria-label": about, title: `largest weight: ${most.toFixed(4)}` });
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = picture !== null;
    context.drawImage(light, 0, 0, width, height);
    if (picture) { context.globalCompositeOperation = "source-in"; context.drawImage(picture, 0, 0); }
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = picture ? DUSK : "#000";
    context.fillRect(0, 0, width, height);
    return canvas;
  }
  place.append(words);
}

function loaded(address) {
  return new Promise((done) => { const image = new Image(); image.onload = () => done(image); image.src = address; });
}
