// Requests to the service that this page comes from.

const KEY = "unrolled.key";

export class ServiceProblem extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export function keep(key) { sessionStorage.setItem(KEY, key); }

export function hasKey() { return sessionStorage.getItem(KEY) !== null; }

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function checked(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ServiceProblem(response.status, body?.error?.message || `The service answered ${response.status}.`);
}

async function sent(path, options) {
  try {
    return await checked(await fetch(path, options));
  } catch (error) {
    if (error instanceof TypeError) throw new ServiceProblem(0, "The service does not answer.");
    throw error;
  }
}

export async function get(path) { return (await sent(path, { headers: headers() })).json(); }

export async function post(path, body, signal) {
  const form = body instanceof FormData;
  const options = { method: "POST", signal, headers: headers(form ? {} : { "Content-Type": "application/json" }) };
  return (await sent(path, { ...options, body: form ? body : JSON.stringify(body) })).json();
}

// The values of server-sent events, as they come.
export async function* events(path, body, signal) {
  const response = await sent(path, {
    method: "POST", signal, headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body),
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const found = JSON.parse(data);
      if (found.error) throw new ServiceProblem(500, found.error.message);
      yield found;
    }
  }
}
