// The state of the page, stored in its URL: a link opens the same view.

const LONGEST = 50000;  // longest text in the URL, in characters
const listeners = [];
export const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

export function change(updates) {
  remember(updates);
  for (const listener of listeners) listener(updates);
}

// The same without listeners, for a view that redraws itself.
export function remember(updates) {
  for (const [name, value] of Object.entries(updates)) {
    if (value === "" || value === null || value === undefined) delete state[name];
    else state[name] = String(value);
  }
  const kept = Object.entries(state).filter(([, value]) => value.length <= LONGEST);
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}

// True if the text is not in the URL.
export function tooLong() { return (state.text ?? "").length > LONGEST; }

export function onChange(listener) { listeners.push(listener); }

addEventListener("hashchange", () => {
  for (const name of Object.keys(state)) delete state[name];
  change(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
});

// The part of the state that selects the trace.
export function traced() {
  const query = { model: state.model, text: state.text };
  for (const [name, value] of Object.entries(state)) if (name.startsWith("o.")) query[name] = value;
  return query;
}
