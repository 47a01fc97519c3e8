// One step of one unit by hand: every equation with its numbers.

import { choice, make, number, tokenStrip } from "unrolled/elements";
import { ask, isReport } from "unrolled/source";
import { change, traced } from "unrolled/state";

export default {
  title: "One step by hand",
  help: "The numbers of every equation, for one step and one unit",
  needsInput: true,
  reason: (overview) => (overview === null || overview.kinds.includes("states") ? null : overview.missing.states),
  async show(place, { overview, state }) {
    const layer = overview.layers.find((one) => one.name === state.layer) ?? overview.layers[0];
    const tokens = overview.parts.find((part) => part.name === layer.part).tokens;
    const units = Math.min(...Object.values(layer.quantities).map((one) => one.units));
    const step = Math.min(Number(state.step ?? 0), tokens.length - 1);
    place.append(make("div", { class: "line" },
      choice("layer", overview.layers.map((one) => one.name), layer.name, (value) => change({ layer: value, step: 0 })),
      number("step", step, layer.steps - 1, (value) => change({ step: value })),
      isReport ? null : number("unit", state.unit ?? 0, units - 1, (value) => change({ unit: value }))));
    place.append(tokenStrip(tokens, { pressed: (i) => i === step, onpick: (i) => change({ step: i }) }));
    const found = await ask("step", { ...traced(), layer: layer.name, step, unit: isReport ? 0 : state.unit ?? 0 });
    const rows = found.lines.map(([name, formula, numbers, value]) => make("tr", {},
      make("td", { class: "equation" }, `${name} = ${formula}`), make("td", { class: "equation" }, `= ${numbers}`),
      make("td", { class: "equation" }, make("strong", {}, `= ${value.toFixed(4)}`))));
    place.append(make("h2", {}, `Step ${step}, “${found.token}” just read, unit ${isReport ? 0 : state.unit ?? 0} of ${layer.name}`),
      make("div", { class: "scroll" }, make("table", { id: "equations" }, ...rows)),
      make("p", { class: "quiet" }, "x is the vector of what was read; h and c with t−1 are what the step before left. W, U and b are the layer's weights: the products shown are this unit's row of them."));
  },
};
