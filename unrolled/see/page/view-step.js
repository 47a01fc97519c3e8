// One step of one unit by hand: the network unrolled around it, its cell, and every equation with its numbers.

import { cellDiagram } from "unrolled/diagram-cell";
import { unrolledDiagram } from "unrolled/diagram-unrolled";
import { choice, make, number, tokenStrip } from "unrolled/elements";
import { math } from "unrolled/math";
import { ask, isReport } from "unrolled/source";
import { change, traced } from "unrolled/state";

const WINDOW = 8;  // steps side by side; the same as in Python
let move = null;  // handler of the arrow keys in this view

export default {
  title: "One step by hand",
  help: "The network unrolled, its cell, and the numbers of every equation, for one step and one unit",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("states") ? null : overview.missing.states),
  async show(place, { overview, about, state }) {
    const layer = overview.layers.find((one) => one.name === state.layer) ?? overview.layers[0];
    const part = overview.parts.find((one) => one.name === layer.part);
    const units = Object.values(layer.quantities).reduce((least, one) => Math.min(least, one.units), Infinity);
    const step = Math.min(Number(state.step ?? 0), part.steps - 1);
    const unit = isReport ? Number(about.opens.unit ?? 0) : Math.min(Number(state.unit ?? 0), units - 1);
    move = (by) => { const next = step + by; if (next >= 0 && next < part.steps) change({ step: next }); };
    place.append(make("div", { class: "line" },
      choice("layer", overview.layers.map((one) => one.name), layer.name, (value) => change({ layer: value })),
      number("step", step, layer.steps - 1, (value) => change({ step: value })),
      isReport ? null : number("unit", unit, units - 1, (value) => change({ unit: value })),
      make("button", { type: "button", "aria-label": "previous step", disabled: step === 0, onclick: () => move(-1) }, "←"),
      make("button", { type: "button", "aria-label": "next step", disabled: step === part.steps - 1, onclick: () => move(1) }, "→"),
      make("span", { class: "quiet" }, "or press ← →")));
    const [seen, found] = await Promise.all([
      ask("unrolled", { ...traced(), part: layer.part, unit, first: step - (step % WINDOW) }),
      ask("step", { ...traced(), layer: layer.name, step, unit }),
    ]);
    const first = step - (step % WINDOW);
    place.append(make("h2", {}, `The network unrolled, steps ${first} to ${first + seen.tokens.length - 1} of ${part.steps.toLocaleString("en")}: values of unit ${unit}; pick a cell`),
      make("div", { class: "scroll" }, unrolledDiagram(seen, { step, layer: layer.name, unit, onpick: (next, name) => change({ step: next, layer: name }) })));
    const here = seen.layers.find((one) => one.name === layer.name), at = step - first;
    const pick = (table) => Object.fromEntries(Object.entries(table).filter(([, values]) => values).map(([name, values]) => [name, values[at]]));
    place.append(make("h2", {}, `Step ${step}, input “${found.token}”, unit ${unit} of ${layer.name}`),
      make("div", { class: "beside" }, equations(found), cellDiagram(pick(here.values), pick(here.entering), here.reverse ? "t+1" : "t−1")),
      make("p", { class: "quiet" }, `x is the input vector; ${here.reverse ? "this layer reads backwards: h and c with t+1 are the states of the next step" : "h and c with t−1 are the states of the previous step"}. W, U and b are the layer's weights; the products shown are those of this unit's row.`));
    place.append(tokenStrip(part.tokens, { pressed: (i) => i === step, onpick: (i) => change({ step: i }) }));
    if (part.steps > part.tokens.length) place.append(make("p", { class: "quiet" }, `The first ${part.tokens.length.toLocaleString("en")} of ${part.steps.toLocaleString("en")} tokens. Type the number of a later step.`));
  },
};

function equations(found) {
  const rows = found.lines.map(([name, formula, numbers, value]) => make("tr", {},
    make("td", {}, math(`${name} = ${formula}`)), make("td", {}, math(`= ${numbers}`)), make("td", {}, make("strong", {}, `= ${value}`))));
  return make("div", { class: "scroll" }, make("table", { id: "equations" }, ...rows));
}

addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.closest?.("nav, .tokens");
  if (!by || typing || event.ctrlKey || event.altKey || event.metaKey || document.getElementById("view").dataset.ready !== "step") return;
  event.preventDefault();
  move(by);
});
