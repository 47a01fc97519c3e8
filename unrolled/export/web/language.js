// Language models: the next token from those before it. Recurrent ones carry a state, Transformers a window of tokens.

import { row } from "./arrays.js";

export function languageModel(manifest, graphs) {
  const context = manifest.context ?? null;
  return context === null ? new LanguageModel(graphs) : new WindowedLanguageModel(graphs, context);
}

function last({ data, shape }) { return row({ data, shape }, data.length / shape[shape.length - 1] - 1); }

class LanguageModel {
  constructor(graphs) { Object.assign(this, { whole: graphs.whole, stepGraph: graphs.step }); }

  // log P of the token after a text from its beginning, and the state after it.
  async read(tokens) {
    const { outputs, state } = await this.readWhole(tokens);
    return { logProbs: last(outputs.log_probs), state };
  }

  readWhole(tokens) {
    const arrays = { tokens: { data: tokens, shape: [1, tokens.length] }, lengths: { data: [tokens.length], shape: [1] } };
    return this.whole.run(arrays);
  }

  // The same, one token further.
  async step(token, state) {
    const found = await this.stepGraph.run({ tokens: { data: [token], shape: [1] } }, state);
    return { logProbs: last(found.outputs.log_probs), state: found.state };
  }
}

// A Transformer, which sees the last `context` tokens; a full window begins anew with its last half.
class WindowedLanguageModel extends LanguageModel {
  constructor(graphs, context) {
    super(graphs);
    this.context = context;
  }

  async read(tokens, state = { window: [], past: null }) {
    let { window } = state;
    let done = 0;
    let found = null;
    while (done < tokens.length) {
      const before = window.length === this.context ? window.slice(this.context - Math.floor(this.context / 2)) : window;
      const count = Math.min(this.context - before.length, tokens.length - done);
      window = [...before, ...tokens.slice(done, done + count)];
      found = await this.readWhole(window);
      done += count;
    }
    return { logProbs: last(found.outputs.log_probs), state: { window, past: found.state } };
  }

  async step(token, state) {
    if (state.window.length === this.context) return this.read([token], state);
    const { logProbs, state: past } = await super.step(token, state.past);
    return { logProbs, state: { window: [...state.window, token], past } };
  }
}
