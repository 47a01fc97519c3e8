// The data of views: from the server, or, in a report, recorded in the page.

const written = document.getElementById("recorded");
const recorded = written === null ? null : JSON.parse(written.textContent);

export const isReport = recorded !== null;

// Must match `report.key` in Python.
export function key(kind, query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  return JSON.stringify([kind, ...pairs.map(([name, value]) => [name, String(value)]).sort()]);
}

export class Problem extends Error {}

// The server's notes about its answers, such as NaN values.
export const notes = new Set();

export async function ask(kind, query = {}) {
  const found = isReport ? recall(kind, query) : await fetched(kind, query);
  if (found.note) notes.add(found.note);
  return found;
}

function recall(kind, query) {
  const found = recorded[key(kind, query)];
  if (found === undefined) throw new Problem("This report does not contain that view. Open the model itself: unrolled inspect MODEL");
  if (found.problem) throw new Problem(found.problem);
  return { ...found };
}

async function fetched(kind, query) {
  const response = await fetch(`/api/${kind}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(query),
  }).catch(() => { throw new Problem("The server does not answer. Is `unrolled inspect` still running?"); });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(answer.problem ?? `The server could not answer: ${response.status}.`);
  return answer;
}
