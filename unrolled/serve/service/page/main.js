// The page: choose a model, give it an input, read its answer.

import { drawn } from "./answers.js";
import { byId, duration, make, short } from "./elements.js";
import { inputFor } from "./inputs.js";
import { declared, fields, given } from "./options.js";
import { events, get, hasKey, keep, post } from "./service.js";

const WRITTEN_ALONG = ["max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "stop", "seed"];
let description = null, models = [], model = null, input = null, running = null;

async function begin() {
  try {
    [description, { data: models }] = await Promise.all([get("openapi.json"), get("v1/models")]);
  } catch (error) {
    byId("keys").hidden = error.status !== 401;
    if (error.status !== 401 || hasKey()) problem(error);
    byId("key").focus();
    return;
  }
  byId("keys").hidden = true;
  byId("answer").replaceChildren();
  byId("models").replaceChildren(...models.map((one) => make("button", {
    type: "button", "data-model": one.id, onclick: () => choose(one),
  }, one.id, make("small", {}, one.task))));
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (models.length) choose(models.find((one) => one.id === wanted) || models[0]);
}

function choose(one) {
  running?.abort();
  model = one;
  history.replaceState(null, "", `#${encodeURIComponent(one.id)}`);
  for (const button of byId("models").children) button.setAttribute("aria-pressed", String(button.dataset.model === one.id));
  input = inputFor(one, () => byId("form").requestSubmit());
  byId("input").replaceChildren(input.element);
  const schemas = declared(description, one.task);
  byId("options").replaceChildren(...fields(schemas, {}));
  byId("more").hidden = !Object.keys(schemas).length;
  byId("answer").replaceChildren();
  byId("time").textContent = "";
  byId("request").hidden = true;
  byId("form").hidden = false;
  tell(one);
}

function tell(one) {
  const scores = Object.entries(one.scores || {}).slice(0, 3).map(([name, value]) => `${name.replaceAll("_", " ")} ${short(value)}`);
  const size = one.parameters ? [`${one.parameters.toLocaleString("en")} parameters`] : ["loaded at the first request"];
  byId("facts").textContent = [...size, ...scores].join(" · ");
}

function problem(error) {
  byId("answer").replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
}

async function run() {
  const asked = model, options = given(byId("options")), value = input.value();
  if (input.isFile && !value) { problem({ message: "There is no file. Drop one, choose one, or record." }); return; }
  running?.abort();
  const mine = running = new AbortController();
  busy(true);
  const began = performance.now();
  try {
    const along = asked.task === "generate" && Object.keys(options).every((name) => WRITTEN_ALONG.includes(name));
    const told = await (along ? writeAlong : answered)(asked, value, options, mine.signal);
    if (running !== mine) return;
    byId("time").textContent = [duration(performance.now() - began), ...told].join(" · ");
  } catch (error) {
    if (running !== mine) return;
    byId("time").textContent = error.name === "AbortError" ? "stopped" : "";
    if (error.name !== "AbortError") problem(error);
  } finally {
    if (running === mine) busy(false);
  }
  if (!asked.parameters) refresh(asked);
}

async function answered(asked, value, options, signal) {
  const path = `v1/models/${encodeURIComponent(asked.id)}/predict`;
  let body = { inputs: value, options };
  if (value instanceof File) {
    body = new FormData();
    body.append("file", value);
    body.append("options", JSON.stringify(options));
    request(path, `-F file=@${quoted(value.name)} -F options=${quoted(JSON.stringify(options))}`);
  } else {
    request(path, `-H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`);
  }
  const { predictions } = await post(path, body, signal);
  byId("answer").replaceChildren(...drawn(asked.task, predictions[0], value));
  return [];
}

async function writeAlong(asked, prompt, options, signal) {
  const body = { model: asked.id, prompt, ...options, stream: true, stream_options: { include_usage: true } };
  request("v1/completions", `-N -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`);
  const text = make("span");
  const began = performance.now();
  let first = null, tokens = 0;
  for await (const { choices, usage } of events("v1/completions", body, signal)) {
    if (first === null) {
      first = performance.now() - began;
      byId("answer").replaceChildren(make("p", { class: "written" }, make("span", { class: "prompt" }, prompt), text));
    }
    if (choices.length) text.append(choices[0].text);
    tokens = usage?.completion_tokens ?? tokens;
  }
  const speed = Math.round((1000 * tokens) / (performance.now() - began));
  return [`first after ${duration(first)}`, `${tokens.toLocaleString("en")} tokens, ${speed.toLocaleString("en")} a second`];
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function request(path, rest) {
  const key = hasKey() ? "-H \"Authorization: Bearer $KEY\" " : "";
  const shown = rest.length > 3000 ? `${rest.slice(0, 3000)} …` : rest;
  byId("request").hidden = false;
  byId("request").querySelector("pre").textContent = `curl ${new URL(path, location.href)} ${key}${shown}`;
}

function busy(is) {
  byId("run").disabled = is;
  byId("stop").hidden = !is;
  byId("answer").setAttribute("aria-busy", String(is));
  if (is) byId("time").textContent = "…";
}

async function refresh(asked) {
  const fresh = await get(`v1/models/${encodeURIComponent(asked.id)}`).catch(() => null);
  if (!fresh) return;
  Object.assign(asked, fresh);
  if (asked === model) tell(asked);
}

byId("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
byId("stop").addEventListener("click", () => running?.abort());
byId("keys").addEventListener("submit", (event) => { event.preventDefault(); keep(byId("key").value.trim()); begin(); });
begin();
