// Graphs in onnxruntime-web, on the CPU and on one thread: more need headers that simple servers do not send.

import * as ort from "./onnxruntime/ort.wasm.bundle.min.mjs";

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = { wasm: new URL("./onnxruntime/ort-wasm-simd-threaded.wasm", import.meta.url).href };
ort.env.logLevel = "error";

const KINDS = { int64: BigInt64Array, float32: Float32Array, bool: Uint8Array };

// The graphs of a manifest by name, their size in bytes, and true if their digests were compared.
export async function openGraphs(manifest) {
  const known = {};
  let size = 0;
  for (const [name, entry] of Object.entries(manifest.graphs)) {
    const answer = await fetch(entry.file);
    if (!answer.ok) throw new Error(`${entry.file}: ${answer.status} ${answer.statusText}. Export the model again.`);
    const content = await answer.arrayBuffer();
    await check(entry, content);
    const session = await ort.InferenceSession.create(content, { executionProviders: ["wasm"], logSeverityLevel: 3 });
    known[name] = new Graph(name, entry, session);
    size += content.byteLength;
  }
  return { known, size, checked: Boolean(globalThis.crypto?.subtle) };
}

async function check(entry, content) {
  if (!globalThis.crypto?.subtle) return; // the page says so
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const found = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (found !== entry.sha256) {
    throw new Error(`${entry.file} is not the file that was exported: its SHA-256 is another one.`);
  }
}

// One graph. Arrays are {data, shape}: numbers in any list, and their sizes.
class Graph {
  constructor(name, entry, session) {
    Object.assign(this, { name, entry, session });
    this.stateEntries = entry.inputs.filter((one) => one.name.startsWith("state_"));
    this.outputs = entry.outputs.map((one) => one.name);
  }

  takes(name) { return this.entry.inputs.some((one) => one.name === name); }

  // The outputs by name, and the state after them; arrays that the graph does not take are left out.
  async run(arrays, state = []) {
    const feeds = {};
    this.stateEntries.forEach((one, place) => { feeds[one.name] = tensor(one.dtype, state[place]); });
    for (const { name, dtype } of this.entry.inputs) {
      if (name in feeds) continue;
      if (!(name in arrays)) throw new Error(`The graph ${this.name} asks for ${name}, which this page does not have.`);
      feeds[name] = tensor(dtype, arrays[name]);
    }
    const found = await this.session.run(feeds);
    const outputs = {};
    for (const name of this.outputs) outputs[name] = { data: found[name].data, shape: found[name].dims };
    const after = this.outputs.filter((name) => name.startsWith("new_state_")).map((name) => outputs[name]);
    return { outputs, state: after };
  }

  // Zeros for so many rows, with nothing along free sizes: the state before the first step.
  initial(rows) {
    return this.stateEntries.map((one) => {
      const shape = [rows, ...one.shape.slice(1).map((size) => (typeof size === "string" ? 0 : size))];
      return { data: new KINDS[one.dtype](shape.reduce((a, b) => a * b, 1)), shape };
    });
  }
}

function tensor(dtype, { data, shape }) {
  const kind = KINDS[dtype];
  if (data instanceof kind) return new ort.Tensor(dtype, data, shape);
  return new ort.Tensor(dtype, dtype === "int64" ? BigInt64Array.from(data, BigInt) : kind.from(data), shape);
}
