// Loads the model of the folder and shows the view of its task.

import { make } from "./elements.js";
import { openGraphs } from "./graphs.js";
import { bytes, milliseconds, problem } from "./page.js";

const FORMAT = "unrolled-onnx";
const VERSION = 1;

// For each task its model, which answers, and its view.
const TASKS = {
  classify: () => Promise.all([import("./classify.js"), import("./view-classify.js")]),
  generate: () => Promise.all([import("./generate.js"), import("./view-generate.js")]),
  recognize: () => Promise.all([import("./recognize.js"), import("./view-recognize.js")]),
  tag: () => Promise.all([import("./tag.js"), import("./view-tag.js")]),
  translate: () => Promise.all([import("./translate.js"), import("./view-translate.js")]),
};

const view = document.getElementById("view");
const facts = document.getElementById("facts");

async function start() {
  const begun = performance.now();
  const manifest = await readManifest();
  const known = TASKS[manifest.task];
  if (!known) throw new Error(`This page has no view for the task ${manifest.task}.`);
  document.getElementById("task").textContent = manifest.task;
  document.title = `unrolled ${manifest.task}`;
  const [[task, shown], graphs] = await Promise.all([known(), openGraphs(manifest)]);
  const model = task.modelOf(manifest, graphs.known);
  view.replaceChildren();
  shown.show(view, model);
  const seconds = milliseconds(performance.now() - begun);
  facts.textContent = [...model.facts, `${bytes(graphs.size)} of graphs`, `loaded in ${seconds}`].join(" · ");
  if (!graphs.checked) {
    view.prepend(make("p", { class: "note" },
      "The graphs were not compared with their SHA-256: browsers compute it for https and for this machine alone."));
  }
  view.dataset.ready = manifest.task;
}

async function readManifest() {
  const answer = await fetch("manifest.json");
  if (!answer.ok) throw new Error(`manifest.json: ${answer.status} ${answer.statusText}. Export the model again.`);
  const manifest = await answer.json();
  if (manifest.format !== FORMAT || manifest.version > VERSION) {
    throw new Error(`This page reads ${FORMAT} up to version ${VERSION}, not ${manifest.format} ${manifest.version}.`);
  }
  return manifest;
}

start().catch((error) => {
  facts.textContent = "The model could not be loaded.";
  view.replaceChildren(problem(error));
  view.dataset.ready = "problem";
});
