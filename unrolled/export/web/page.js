// Parts that views share: boxes, bars, errors, times.

import { make } from "./elements.js";

export function problem(error) {
  return make("p", { class: "problem", role: "alert" }, error instanceof Error ? error.message : String(error));
}

export function bytes(count) { return count < 1e5 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`; }

export function milliseconds(time) { return time < 1000 ? `${Math.round(time)} ms` : `${(time / 1000).toFixed(1)} s`; }

export function percent(share) { return `${(100 * share).toFixed(1)} %`; }

// A box for text; `labelled` is the box with its label.
export function textBox(label, placeholder, rows = 4) {
  const box = make("textarea", { id: "text", rows, placeholder, spellcheck: "false" });
  box.labelled = make("label", { class: "box" }, label, box);
  return box;
}

// A number that the user sets; `value()` is the number, or null where the field is empty.
export function numberField(name, label, value, { min, max, step = 1, hint = "" }) {
  const field = make("input", { type: "number", id: name, min, max, step, value, title: hint });
  return {
    labelled: make("label", { title: hint }, `${label} `, field),
    value() {
      if (field.value === "" && field.validity.valid) return null;
      if (!field.validity.valid) throw new Error(`${label}: expected a number from ${min} to ${max}${step === 1 ? ", a whole one" : ""}.`);
      return field.valueAsNumber;
    },
  };
}

// A horizontal bar for each {name, share, chosen}.
export function bars(rows) {
  const list = make("dl", { class: "bars" });
  for (const { name, share, chosen } of rows) {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${100 * share}%`;
    list.append(
      make("dt", { class: chosen ? "chosen" : "" }, name),
      make("dd", { class: chosen ? "chosen" : "" }, make("span", { class: "track", "aria-hidden": "true" }, bar), make("span", { class: "share" }, percent(share))),
    );
  }
  return list;
}

// One answer at a time: `ask` computes a new one, after the current one if there is one; `status` shows the time it
// took, or the error. While `work` runs, `status` has the attribute data-busy.
export function answering(work, done = (time) => `answered in ${milliseconds(time)}`) {
  const status = make("p", { id: "status", class: "quiet", role: "status" });
  let running = false;
  let again = false;
  async function ask() {
    again = true;
    if (running) return;
    running = true;
    status.dataset.busy = "yes";
    while (again) {
      again = false;
      const begun = performance.now();
      try {
        await work();
        status.className = "quiet";
        status.textContent = done(performance.now() - begun);
      } catch (error) {
        status.className = "problem";
        status.textContent = error instanceof Error ? error.message : String(error);
      }
    }
    running = false;
    delete status.dataset.busy;
  }
  return { ask, status };
}
