// The view of a recogniser: a place to drop a recording, a microphone, and the text with its words over time.

import { make } from "./elements.js";
import { openMicrophone } from "./microphone.js";
import { answering, milliseconds, numberField, percent } from "./page.js";
import { joined, readSound } from "./sound.js";

export function show(place, model) {
  const file = make("input", { type: "file", id: "file", accept: "audio/*,.wav,.flac,.ogg,.mp3" });
  const drop = make("label", { class: "drop" }, make("strong", {}, "Drop a recording here"), " or choose one ", file);
  const record = make("button", { type: "button", id: "record", class: "main" }, "Record");
  const level = make("meter", { id: "level", min: 0, max: 1, "aria-label": "loudness", hidden: true });
  const beam = numberField("beam", "beam", 1, { min: 1, max: 1000, hint: "1: the likeliest label of each frame; more: searches for the likeliest text" });
  const player = make("audio", { controls: true, hidden: true });
  const answer = make("section", { id: "answer", "aria-live": "polite" });

  let sound = null; // the recording that is shown
  const { ask, status } = answering(async () => {
    if (sound) shownAnswer(answer, await model.answer(sound, { beam: beam.value() ?? 1 }));
  }, (time) => (sound ? `${(sound.samples.length / sound.rate).toFixed(1)} s of sound, answered in ${milliseconds(time)}` : "waiting for a recording"));

  const take = async (given) => {
    try {
      sound = await readSound(await given.arrayBuffer(), model.rate);
      play(player, given);
      ask();
    } catch (error) {
      sound = null;
      answer.replaceChildren();
      status.className = "problem";
      status.textContent = error.message;
    }
  };
  file.addEventListener("change", () => { if (file.files.length) take(file.files[0]); });
  beam.labelled.addEventListener("change", ask);
  dropping(drop, take);
  recording(record, level, model, {
    sofar(text) { answer.replaceChildren(make("p", { class: "said" }, text)); },
    heard(found) {
      sound = found;
      play(player, new Blob([wavOf(found)], { type: "audio/wav" }));
      ask();
    },
    failed(error) {
      status.className = "problem";
      status.textContent = error.message;
    },
  });
  place.append(drop, make("div", { class: "line" }, record, level, beam.labelled, player), answer, status);
  ask();
}

function shownAnswer(place, { text, words }) {
  place.replaceChildren(make("p", { class: "said" }, text || "nothing was heard"));
  if (!words.length) return;
  const list = make("ol", { class: "chips" });
  for (const word of words) {
    const chip = make("li", {}, make("span", { class: "chip" }, word.text), make("small", {}, `${word.start.toFixed(2)} s`), make("small", {}, percent(word.confidence)));
    chip.title = `${word.start.toFixed(2)} to ${word.end.toFixed(2)} s, confidence ${percent(word.confidence)}`;
    chip.style.setProperty("--doubt", (1 - word.confidence).toFixed(3));
    list.append(chip);
  }
  place.append(list);
}

function play(player, blob) {
  URL.revokeObjectURL(player.src);
  player.src = URL.createObjectURL(blob);
  player.hidden = false;
}

function dropping(zone, take) {
  for (const name of ["dragenter", "dragover"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
  }
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
  });
}

// A button that records until it is pressed again; a model that streams writes while it hears.
function recording(button, level, model, { sofar, heard, failed }) {
  let microphone = null;
  let pieces = [];
  let work = Promise.resolve();
  let stream = null;
  const onpiece = (piece, rate) => {
    pieces.push(piece);
    if (model.streams) stream ??= model.stream(rate);
    level.value = Math.min(1, 3 * Math.sqrt(piece.reduce((sum, one) => sum + one * one, 0) / piece.length));
    if (stream) work = work.then(() => stream.feed(piece)).then(sofar).catch(failed);
  };
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      if (microphone === null) {
        [pieces, stream, work] = [[], null, Promise.resolve()];
        microphone = await openMicrophone(onpiece);
      } else {
        const { rate } = microphone;
        await microphone.close();
        microphone = null;
        await work;
        heard({ samples: joined(pieces), rate });
      }
    } catch (error) {
      microphone = null;
      failed(error);
    }
    button.textContent = microphone ? "Stop" : "Record";
    button.setAttribute("aria-pressed", microphone ? "true" : "false");
    level.hidden = !microphone;
    button.disabled = false;
  });
}

// A wav file of 16-bit samples, to play what was recorded.
function wavOf({ samples, rate }) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const write = (at, text) => [...text].forEach((letter, place) => view.setUint8(at + place, letter.charCodeAt(0)));
  write(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  write(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  [1, 1].forEach((value, place) => view.setUint16(20 + 2 * place, value, true)); // whole numbers, one channel
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  [2, 16].forEach((value, place) => view.setUint16(32 + 2 * place, value, true)); // bytes and bits of a sample
  write(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, place) => view.setInt16(44 + 2 * place, Math.round(32767 * Math.min(1, Math.max(-1, sample))), true));
  return view.buffer;
}
