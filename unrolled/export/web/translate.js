// A translator: a source in, the best translations out.

import { argmax } from "./arrays.js";
import { beamSearch } from "./beam.js";
import { Side } from "./side.js";

export const USUAL = { beam: 5, nBest: 1 };

export function modelOf(manifest, graphs) { return new TranslateModel(manifest, graphs); }

class TranslateModel {
  constructor(manifest, graphs) {
    const { source, target, ratio } = manifest.assets;
    this.source = new Side(source);
    this.target = target === null ? this.source : new Side(target);
    Object.assign(this, { ratio, graphs });
    this.attends = graphs.step.outputs.includes("attention");
    this.shared = graphs.step.entry.inputs.map((one) => one.name).filter((name) => name.startsWith("shared_"));
    // unknown words are replaced by those of the source, where attention says which
    this.replaces = this.attends && this.target.tokenizer.level === "word";
  }

  get facts() {
    const sizes = [this.source, this.target].map((side) => side.tokenizer.vocabulary.tokens.length.toLocaleString("en"));
    return [`${sizes[0]} source and ${sizes[1]} target tokens`];
  }

  // [{text, score, logProb, ended, sourceTokens, targetTokens, attention}, …], the best first; none of an empty text.
  async answer(text, options = {}) {
    const { beam, nBest } = { ...USUAL, ...options };
    const ids = this.source.ids(text);
    if (!ids.length) return [];
    const { state, shared } = await this.encoded([...ids, this.source.end]);
    const { begin, end, tokenizer } = this.target;
    const { unknown } = tokenizer.vocabulary;
    const limits = {
      begin,
      end,
      forbidden: unknown === null || this.replaces ? [begin] : [begin, unknown],
      most: Math.max(1, Math.trunc(1.5 * this.ratio * (ids.length + 1)) + 10),
      size: beam,
      nBest: Math.min(nBest, beam),
    };
    const found = await beamSearch((tokens, own) => this.step(tokens, own, shared), state, limits);
    return found.map((one) => this.shown(one, text, ids));
  }

  async encoded(ids) {
    const { encode, step } = this.graphs;
    const arrays = { inputs: { data: ids, shape: [1, ids.length] }, lengths: { data: [ids.length], shape: [1] } };
    const { outputs } = await encode.run(arrays);
    const empty = step.initial(1); // where the encoder gives no state, nothing was written yet
    const state = step.stateEntries.map((one, place) => outputs[one.name] ?? empty[place]);
    return { state, shared: Object.fromEntries(this.shared.map((name) => [name, outputs[name]])) };
  }

  async step(tokens, own, shared) {
    const { outputs, state } = await this.graphs.step.run({ tokens: { data: tokens, shape: [tokens.length] }, ...shared }, own);
    const attention = outputs.attention ?? null;
    const width = attention && attention.data.length / tokens.length;
    return { logProbs: outputs.log_probs, state, attention: attention && { data: attention.data, shape: [tokens.length, width] } };
  }

  shown({ tokens, attention, ...scores }, source, ids) {
    const looked = this.attends ? attention.slice(0, tokens.length).map((weights) => weights.slice(0, ids.length)) : null;
    const { unknown } = this.target.tokenizer.vocabulary;
    let instead = [];
    if (this.replaces && tokens.includes(unknown)) {
      const words = this.source.words(source);
      instead = tokens.map((token, place) => (token === unknown ? words[argmax(looked[place])] : null));
    }
    return {
      ...scores,
      text: this.target.text(tokens, instead),
      sourceTokens: ids.map((number) => this.source.tokenizer.token(number)),
      targetTokens: tokens.map((number) => this.target.tokenizer.token(number)),
      attention: looked,
    };
  }
}
