// A model that writes: a prompt in, its continuation out, token by token.

import { top } from "./arrays.js";
import { languageModel } from "./language.js";
import { Random } from "./random.js";
import { choose } from "./sampling.js";
import { StreamDecoder, tokenizerOf } from "./tokenizers.js";

export const USUAL = { temperature: 0.8, topP: 1, maxTokens: 400, seed: null };
const SHOWN = 8; // of the tokens that might have come

export function modelOf(manifest, graphs) { return new GenerateModel(manifest, graphs); }

class GenerateModel {
  constructor(manifest, graphs) {
    this.tokenizer = tokenizerOf(manifest.assets);
    this.network = languageModel(manifest, graphs);
    this.backward = manifest.config.data.direction === "backward";
  }

  get facts() {
    const { level, vocabulary } = this.tokenizer;
    const noun = { char: "characters", word: "words", symbols: "symbols", bpe: "sub-words" }[level];
    return [`${vocabulary.tokens.length.toLocaleString("en")} ${noun}`];
  }

  // The tokens of a prompt in the order that the model reads them, after the start token: a new line.
  promptTokens(prompt) {
    const ids = this.tokenizer.ids(prompt);
    return [this.tokenizer.ids("\n")[0] ?? 0, ...(this.backward ? ids.reverse() : ids)];
  }

  // Each new token with the probability that the model gave it, and the likeliest ones at its place.
  async *write(tokens, options) {
    const { maxTokens, seed, ...sampling } = { ...USUAL, ...options };
    const random = new Random(seed ?? crypto.getRandomValues(new Uint32Array(1))[0]);
    const { unknown } = this.tokenizer.vocabulary;
    let { logProbs, state } = await this.network.read(tokens);
    for (let count = 1; ; count += 1) {
      const allowed = logProbs.slice();
      if (unknown !== null) allowed[unknown] = -Infinity;
      const number = choose(allowed, sampling, random.random());
      if (number < 0) throw new Error("No token is left to choose: the model's probabilities are not numbers.");
      const likely = top(logProbs, SHOWN).map((one) => ({ number: one, probability: Math.exp(logProbs[one]) }));
      yield { number, probability: Math.exp(logProbs[number]), likely };
      if (count >= maxTokens) return;
      ({ logProbs, state } = await this.network.step(number, state));
    }
  }

  writer(tokens) { return this.backward ? new BackwardText(this.tokenizer, tokens) : new ForwardText(this.tokenizer, tokens); }

  // The whole continuation.
  async answer(prompt, options = {}) {
    const tokens = this.promptTokens(prompt);
    const writer = this.writer(tokens);
    const probabilities = [];
    for await (const { number, probability } of this.write(tokens, options)) {
      writer.feed(number);
      probabilities.push(probability);
    }
    return { text: writer.finish(), probabilities };
  }
}

// The text of tokens as they come; `feed` gives the piece that a token completes.
class ForwardText {
  constructor(tokenizer, prompt) {
    this.stream = new StreamDecoder(tokenizer);
    prompt.slice(1).forEach((number) => this.stream.feed(number));
    this.text = "";
  }

  feed(number) {
    const piece = this.stream.feed(number);
    this.text += piece;
    return piece;
  }

  finish() { return this.text + this.stream.finish(); }
}

// The same from right to left: every token may change the blanks around it.
class BackwardText {
  constructor(tokenizer, prompt) { Object.assign(this, { tokenizer, prompt, ids: [] }); }

  feed(number) {
    this.ids.unshift(number);
    return null;
  }

  // With the blank between it and the prompt, if the tokenizer puts one there.
  finish() {
    const text = this.tokenizer.decode(this.ids);
    const next = this.prompt.length > 1 ? this.prompt[this.prompt.length - 1] : null;
    if (text === "" || next === null) return text;
    const [after, alone] = [this.ids[this.ids.length - 1], null].map((before) => this.tokenizer.piece(next, before));
    return typeof after === "string" ? text + after.slice(0, after.length - alone.length) : text;
  }
}
