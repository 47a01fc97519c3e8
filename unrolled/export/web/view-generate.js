// The view of a model that writes: a prompt, the settings, and the text with the probability of each token.

import { make } from "./elements.js";
import { USUAL } from "./generate.js";
import { answering, bars, numberField, percent, textBox } from "./page.js";

const BREATH = 30; // milliseconds after which the browser may draw

export function show(place, model) {
  const box = textBox("Prompt", "How does the text begin? Empty: anything.", 3);
  const fields = {
    temperature: numberField("temperature", "temperature", USUAL.temperature, { min: 0, max: 5, step: 0.05, hint: "0: always the likeliest token" }),
    topP: numberField("top-p", "top-p", USUAL.topP, { min: 0.01, max: 1, step: 0.01, hint: "share of probability to draw from; 1: all" }),
    maxTokens: numberField("tokens", "tokens", 200, { min: 1, max: 100000, hint: "the length of the text" }),
    seed: numberField("seed", "seed", 1, { min: 0, max: Number.MAX_SAFE_INTEGER, hint: "the same seed writes the same text; empty: another one every time" }),
  };
  const write = make("button", { type: "submit", class: "main" }, "Write");
  const stop = make("button", { type: "button", id: "stop", disabled: true, onclick: () => { stop.dataset.asked = "yes"; } }, "Stop");
  const text = make("div", { id: "written", class: "written", tabindex: 0, "aria-label": "The text. Arrow keys choose a token." });
  const choices = make("section", { id: "choices", "aria-live": "polite" });
  const form = make("form", {}, box.labelled,
    make("div", { class: "line" }, ...Object.values(fields).map((field) => field.labelled)),
    make("div", { class: "line" }, write, stop));
  let tokens = 0;
  const { ask, status } = answering(async () => {
    const options = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value() ?? USUAL[name]]));
    delete stop.dataset.asked;
    [write.disabled, stop.disabled] = [true, false];
    tokens = 0;
    choices.replaceChildren();
    try {
      tokens = await written(model, box.value, options, text, () => stop.dataset.asked === "yes");
    } finally {
      [write.disabled, stop.disabled] = [false, true];
    }
  }, (time) => `${tokens} tokens in ${(time / 1000).toFixed(1)} s, ${Math.round((1000 * tokens) / time).toLocaleString("en")} a second`);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  box.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
  choosing(text, (token) => choices.replaceChildren(...alternatives(token.about, model)));
  const legend = make("p", { class: "quiet" }, "The stronger a token is marked, the less likely the model took it to be. Choose one to see the others.");
  place.append(form, text, status, legend, choices);
  box.focus();
}

// Writes into `place` until the text ends or is stopped; the number of tokens.
async function written(model, prompt, options, place, stopped) {
  const tokens = model.promptTokens(prompt);
  const writer = model.writer(tokens);
  const given = make("span", { class: "prompt" }, prompt);
  const whole = make("span", {});
  place.replaceChildren(...(model.backward ? [whole, given] : [given, whole]));
  let count = 0;
  let drawn = performance.now();
  for await (const token of model.write(tokens, options)) {
    count += 1;
    const piece = writer.feed(token.number);
    if (piece === null) whole.textContent = writer.finish();
    else whole.append(shaded(piece, token));
    if (stopped()) break;
    if (performance.now() - drawn > BREATH) {
      await new Promise((resolve) => { setTimeout(resolve); });
      drawn = performance.now();
    }
  }
  if (!model.backward) whole.append(writer.finish().slice(writer.text.length)); // bytes of a character that never ended
  return count;
}

// The likelier the model took a token to be, the fainter it is marked.
function shaded(piece, token) {
  const mark = make("span", { class: "token", title: percent(token.probability) }, piece);
  mark.style.setProperty("--doubt", (1 - token.probability).toFixed(3));
  mark.about = token;
  return mark;
}

// A click or the arrow keys choose a token.
function choosing(text, onpick) {
  const pick = (mark) => {
    text.querySelector(".picked")?.classList.remove("picked");
    mark.classList.add("picked");
    onpick(mark);
  };
  text.addEventListener("click", (event) => { if (event.target.about) pick(event.target); });
  text.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const marks = [...text.querySelectorAll(".token")];
    if (!step || !marks.length) return;
    event.preventDefault();
    const here = marks.findIndex((mark) => mark.classList.contains("picked"));
    pick(marks[here < 0 ? 0 : Math.min(marks.length - 1, Math.max(0, here + step))]);
  });
}

function alternatives({ number, probability, likely }, model) {
  const rows = likely.some((one) => one.number === number) ? likely : [...likely, { number, probability }];
  const name = (one) => JSON.stringify(model.tokenizer.token(one.number)).slice(1, -1).replaceAll(" ", "␣");
  return [
    make("h2", {}, "What might have come there"),
    bars(rows.map((one) => ({ name: name(one), share: one.probability, chosen: one.number === number }))),
  ];
}
