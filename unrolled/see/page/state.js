// What the page shows, kept in its address: a link opens the same view again.

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
  history.replaceState(null, "", `#${new URLSearchParams(state)}`);
}

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
