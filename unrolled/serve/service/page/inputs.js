// What a model of each task takes: a field for it, and its value as the service reads it.

import { make } from "./elements.js";
import { startRecording } from "./sound.js";

const TEXTS = {
  classify: "A text to classify", tag: "A sentence to tag", generate: "A text to continue", translate: "A text to translate",
};

export function inputFor(model, submit) {
  if (model.task === "forecast") return rowsInput();
  if (model.task === "caption") return fileInput({ pictures: true });
  if (model.task === "recognize") return fileInput({ pictures: model.reads !== "audio", sounds: model.reads !== "line" });
  return textInput(TEXTS[model.task] || "The input", submit);
}

function textInput(label, submit) {
  const area = make("textarea", { rows: 4, id: "text" });
  area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(); });
  return { element: make("label", { class: "box" }, label, area), value: () => area.value };
}

function rowsInput() {
  const area = make("textarea", { rows: 8, id: "text", class: "code", spellcheck: "false", placeholder: "1.0, 2.0\n1.5, 2.2\n…" });
  const file = make("input", { type: "file", accept: ".csv,.tsv,.txt", onchange: async () => { area.value = await file.files[0].text(); } });
  const element = make("div", {}, make("label", { class: "box" }, "Rows of the series, the oldest first", area),
    make("label", { class: "line quiet" }, "or from a CSV file", file));
  return { element, value: () => ({ rows: rowsOf(area.value) }) };
}

// Cells of a text: a header is left out, empty cells are gaps.
export function rowsOf(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  const separator = ["\t", ";", ","].find((one) => lines[0]?.includes(one)) || ",";
  const cells = lines.map((line) => line.split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1")));
  const isNumber = (cell) => cell !== "" && Number.isFinite(Number(cell));
  if (cells.length > 1 && !cells[0].some(isNumber) && cells[1].some(isNumber)) cells.shift();
  return cells.map((row) => row.map((cell) => (cell === "" ? null : isNumber(cell) ? Number(cell) : cell)));
}

function fileInput({ pictures = false, sounds = false }) {
  let chosen = null;
  const shown = make("div", { class: "shown" });
  const what = pictures && sounds ? "a recording or a picture" : pictures ? "a picture" : "a recording";
  const accept = [sounds ? "audio/*" : "", pictures ? "image/*" : "", ".npy"].filter(Boolean).join(",");
  const picker = make("input", { type: "file", accept, id: "file", onchange: () => take(picker.files[0]) });
  const drop = make("label", {
    class: "drop",
    ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); },
    ondragleave: () => drop.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); take(event.dataTransfer.files[0]); },
  }, `Drop ${what} here, or choose a file.`, picker);

  function take(file) {
    if (!file) return;
    chosen = file;
    shown.querySelectorAll("[src]").forEach((one) => URL.revokeObjectURL(one.src));
    const src = URL.createObjectURL(file);
    const preview = file.type.startsWith("image/") ? make("img", { src, alt: file.name })
      : file.type.startsWith("audio/") ? make("audio", { src, controls: true }) : null;
    shown.replaceChildren(make("span", { class: "quiet" }, `${file.name}, ${Math.ceil(file.size / 1024).toLocaleString("en")} KB`), ...(preview ? [preview] : []));
  }

  const element = make("div", {}, drop, sounds ? recordButton(take) : null, shown);
  return { element, isFile: true, value: () => chosen };
}

function recordButton(take) {
  let finish = null;
  const said = make("span", { class: "quiet" });
  const button = make("button", { type: "button", id: "record", onclick: toggle }, "Record");
  async function toggle() {
    try {
      if (finish) {
        const stop = finish;
        finish = null;
        take(await stop());
      } else {
        finish = await startRecording();
      }
      said.textContent = finish ? "Listening …" : "";
    } catch (error) {
      said.textContent = error.name === "NotAllowedError" ? "The microphone is not allowed." : `The microphone failed: ${error.message}`;
    }
    button.textContent = finish ? "Stop recording" : "Record";
    button.classList.toggle("on", Boolean(finish));
  }
  return make("div", { class: "line" }, button, said);
}
