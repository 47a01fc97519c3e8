// What the model made of the input, token by token.

import { make, tokenStrip } from "unrolled/elements";
import { isReport } from "unrolled/source";
import { change } from "unrolled/state";
import { COLOURS, curves, tokenAxis } from "unrolled/plot";

export default {
  title: "Overview",
  help: "The answer, the loss of every step, and what the model expected",
  needsInput: true,
  reason: () => null,
  async show(place, { overview, model, state }) {
    place.append(make("p", { id: "answer" }, make("strong", {}, overview.task), `: ${overview.answer}`));
    const worst = Math.max(...overview.losses, 1e-9);
    const detail = make("div", { id: "detail", class: "quiet" }, "Pick a token to see what the model expected there.");
    place.append(make("h2", {}, "Loss of each step, in nats"), tokenStrip(overview.losses_of, {
      shade: (i) => overview.losses[i] / worst,
      about: (i) => `step ${i}: loss ${overview.losses[i]}`,
      onpick: (i) => expected(detail, overview, i),
    }), detail);
    const [name, tokens] = Object.entries(overview.inputs)[0] ?? [];
    const hide = model.options.some((option) => option.name === "hide");
    if (tokens && hide && !isReport) {
      const hidden = new Set((state["o.hide"] ?? "").split(",").filter((one) => one !== ""));
      place.append(make("h2", {}, `What if a token of the ${name} were hidden? Pick it.`), tokenStrip(tokens, {
        hidden: (i) => hidden.has(String(i)),
        pressed: (i) => hidden.has(String(i)),
        onpick: (i) => {
          if (!hidden.delete(String(i))) hidden.add(String(i));
          change({ "o.hide": [...hidden].sort((a, b) => a - b).join(",") });
        },
      }));
    }
    const places = overview.losses.map((_, i) => i);
    curves(place, { loss: overview.losses }, {
      title: "", x: places, xaxis: tokenAxis(places.slice(0, overview.losses_of.length), overview.losses_of), yaxis: { title: { text: "loss" }, rangemode: "tozero" }, marks: overview.losses.length < 500,
      width: Math.min(4000, 12 * overview.losses_of.length),
    });
    for (const [kind, why] of Object.entries(overview.missing)) place.append(make("p", { class: "quiet" }, `No ${kind}: ${why}`));
  },
};

function expected(detail, overview, i) {
  const guesses = overview.guesses[i] ?? overview.guesses[0];
  if (!guesses) { detail.textContent = `loss ${overview.losses[i]}`; return; }
  const rows = guesses.map(([token, chance]) => make("tr", {}, make("td", {}, token), make("td", {}, `${(100 * chance).toFixed(1)} %`),
    make("td", {}, bar(chance))));
  detail.replaceChildren(`Step ${i}, “${overview.losses_of[i]}”, loss ${overview.losses[i]}. Likeliest:`, make("table", {}, ...rows));
}

function bar(share) {
  const element = make("div");
  element.style.cssText = `height:0.8em;width:${Math.max(1, 160 * share)}px;background:${COLOURS[0]}`;
  return element;
}
