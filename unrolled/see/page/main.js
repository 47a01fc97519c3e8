// The page: model, input, options and the current view.

import { make } from "unrolled/elements";
import { ask, isReport, notes } from "unrolled/source";
import { change, onChange, remember, state, tooLong, traced } from "unrolled/state";
import { onTheme, zoom } from "unrolled/theme";
import { VIEWS } from "unrolled/views";

const about = await ask("about");
const panel = document.getElementById("view");
const tabs = document.getElementById("tabs");
let overview = null;
let drawing = 0;

function model() { return about.models.find((one) => one.name === state.model) ?? about.models[0]; }

function fillHeader() {
  const select = document.getElementById("model");
  select.replaceChildren(...about.models.map((one) => make("option", { value: one.name }, one.short)));
  select.value = model().name;
  select.onchange = () => change({ ...typed(), model: select.value, layer: "", quantity: "", map: "" });
  const scores = Object.entries(model().scores).slice(0, 4).map(([name, value]) => `${name} ${value}`).join(", ");
  document.getElementById("facts").textContent =
    `${model().task}, ${model().parameters.toLocaleString("en")} parameters${scores ? `, ${scores}` : ""}`;
  const text = document.getElementById("text");
  text.value = state.text ?? "";
  document.getElementById("long").hidden = !tooLong();
  text.placeholder = model().fixed ? about.file ?? "" : about.file ? `empty: ${about.file}` : "a text to inspect";
  text.disabled = isReport || model().fixed;
  document.querySelector("#input button").disabled = text.disabled;
  if (isReport) document.getElementById("changes").remove();
  else fillOptions();
}

function fillOptions() {
  const box = document.getElementById("options");
  box.replaceChildren(...model().options.map((option) => {
    const name = `o.${option.name}`;
    const pick = () => change({ ...typed(), [name]: field.value });
    const field = option.choices.length
      ? make("select", { name, title: option.help, onchange: pick }, ...["", ...option.choices].map((one) => make("option", { value: one, selected: one === (state[name] ?? "") }, one || "default")))
      : make("input", {
        type: option.kind === "float" || option.kind === "int" ? "number" : "text", step: option.kind === "int" ? 1 : "any",
        name, value: state[name] ?? "", placeholder: option.default, title: option.help, onchange: pick,
      });
    return make("label", { title: option.help }, `${option.name} `, field);
  }));
  document.getElementById("changes").open = model().options.some((option) => state[`o.${option.name}`]);
}

// Text that was typed but not submitted: other changes must keep it.
function typed() {
  const text = document.getElementById("text");
  return text.disabled || text.value === (state.text ?? "") ? {} : { text: text.value, from: "", first: "", last: "" };
}

document.getElementById("input").addEventListener("submit", (event) => {
  event.preventDefault();
  change({ text: document.getElementById("text").value, from: "", first: "", last: "", step: "" });
});
document.getElementById("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  document.getElementById("input").requestSubmit();
});

// Text size of the whole page.
function resize(factor) {
  remember({ zoom: Math.min(3, Math.max(0.5, Number(state.zoom ?? 1) * factor)).toFixed(2) });
  zoom(state.zoom);
  draw();
}
document.getElementById("larger").addEventListener("click", () => resize(1.2));
document.getElementById("smaller").addEventListener("click", () => resize(1 / 1.2));
onTheme(() => draw());

function usable(view) { return view.reason(overview, about, model()); }

function fillTabs() {
  const buttons = Object.entries(VIEWS).map(([name, view]) => {
    const reason = usable(view);
    return make("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "view", "aria-selected": name === shown() ? "true" : "false",
      tabindex: name === shown() ? 0 : -1, disabled: reason !== null, title: reason ?? view.help,
      onclick: () => change({ view: name }),
    }, view.title);
  });
  tabs.replaceChildren(...buttons);
}

tabs.addEventListener("keydown", (event) => {
  const open = [...tabs.children].filter((tab) => !tab.disabled);
  const here = open.indexOf(document.activeElement);
  const there = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: open.length - 1 }[event.key];
  if (here < 0 || there === undefined) return;
  event.preventDefault();
  const next = open[(there + open.length) % open.length];
  next.click();
  document.getElementById(next.id).focus();
});

// Answer and truth on one line, above every view of an input.
function beside({ answer, truth, right, follows }) {
  const short = (text) => (text.length > 160 ? `${text.slice(0, 159)}…` : text || "(nothing)");
  const judged = right === null ? "" : right ? " ✓ right" : " ✗ wrong";
  return make("p", { class: "quiet beside-line" }, make("strong", {}, short(answer)), judged,
    truth === null ? "" : ` · truth: ${short(truth)} · losses of the ${follows}`);
}

function shown() { return state.view in VIEWS ? state.view : "overview"; }

async function draw() {
  const turn = ++drawing;
  const view = VIEWS[shown()];
  panel.setAttribute("aria-labelledby", `tab-${shown()}`);
  panel.dataset.ready = "";
  notes.clear();
  const place = make("div");
  try {
    if (view.needsInput && !state.text && !about.file) throw new Error(model().fixed
      ? `This model reads files. Name one: unrolled inspect ${model().name} FILE. Or use an example from its data: --example 0`
      : "Enter an input above.");
    if (overview === null && (view.needsInput || state.text || about.file)) {
      panel.replaceChildren(make("p", { class: "quiet" }, "…"));
      overview = await ask("overview", { ...traced(), from: state.from }).catch((problem) => { if (view.needsInput) throw problem; return null; });
      if (turn !== drawing) return;
    }
    fillTabs();
    panel.replaceChildren(place);  // before it is filled: charts measure their container
    const reason = usable(view);
    if (overview !== null && view.needsInput && shown() !== "overview") place.append(beside(overview));
    if (reason !== null) place.append(make("p", { class: "problem" }, reason));
    else await view.show(place, { overview, about, model: model(), state });
  } catch (problem) {
    fillTabs();
    place.append(make("p", { class: "problem" }, problem.message));
  }
  if (turn !== drawing) return;
  if (!place.isConnected) panel.replaceChildren(place);
  for (const note of notes) place.prepend(make("p", { class: "note" }, note));
  panel.dataset.ready = shown();
}

onChange((updates) => {
  const names = Object.keys(updates);
  if (names.some((name) => name === "text" || name === "model" || name === "from" || name.startsWith("o."))) {
    overview = null;
    fillHeader();
  }
  draw();
});

if (!state.model) state.model = about.models[0].name;
if (state.text === undefined && about.text) state.text = about.text;
for (const [name, value] of Object.entries(about.options)) state[`o.${name}`] ??= value;
for (const [name, value] of Object.entries(about.opens)) state[name] ??= value;
zoom(state.zoom);
fillHeader();
fillTabs();
draw();
