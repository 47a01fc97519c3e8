// What the page shows, kept in its address: a link opens the same view again.

const LONGEST = 50000;  // characters of a text that an address can hold
const listeners = [];
export const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

export function change(updates) {
  remember(updates);
  for (const listener of listeners) listener(updates);
}

// The same, for a view that shows the change itself.
export function remember(updates) {
  for (const [name, value] of Object.entries(updates)) {
    if (value === "" || value === null || value === undefined) delete state[name];
    else state[name] = String(value);
  }
  const kept = Object.entries(state).filter(([, value]) => value.length <= LONGEST);
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}

// Whether a link to this page would lack the text.
export function tooLong() { return (state.text ?? "").length > LONGEST; }

export function onChange(listener) { listeners.push(listener); }

addEventListener("hashchange", () => {
  for (const name of Object.keys(state)) delete state[name];
  change(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
});

// The part of the state that says which trace is looked at.
export function traced() {
  const query = { model: state.model, text: state.text };
  for (const [name, value] of Object.entries(state)) if (name.startsWith("o.")) query[name] = value;
  return query;
}
