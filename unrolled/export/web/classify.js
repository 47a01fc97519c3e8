// A classifier: a text in, the probability of each label out, or a number.

import { argmax, row, softmax } from "./arrays.js";
import { ngramArrays, wideArrays } from "./ngrams.js";
import { tokenizerOf } from "./tokenizers.js";
import { sequence, splitWords, Words } from "./words.js";

export function modelOf(manifest, graphs) { return new ClassifyModel(manifest, graphs); }

class ClassifyModel {
  constructor(manifest, graphs) {
    const { reader, labels, scale, wide, calibration } = manifest.assets;
    this.words = reader.words && new Words(reader.words);
    this.tokenizer = reader.tokenizer && tokenizerOf(reader.tokenizer);
    if (!this.words && !this.tokenizer) throw new Error("This model reads frames, and this page has a box for text.");
    Object.assign(this, { labels, scale: scale ?? null, wide, graph: graphs.whole });
    this.temperature = calibration?.temperature ?? 1;
    this.thresholds = calibration?.thresholds ?? [];
    this.buckets = manifest.config.model.ngrams;
    this.several = manifest.config.data.multi_label;
  }

  get facts() { return [this.scale ? "a number" : `${this.labels.length} labels`]; }

  async answer(text) {
    const words = splitWords(text);
    const arrays = {
      ...(this.graph.takes("inputs") ? this.sequence(words, text) : {}),
      ...(this.graph.takes("ngrams") ? ngramArrays(words, this.buckets) : {}),
      ...(this.graph.takes("wide_ngrams") ? wideArrays(words, this.wide) : {}),
    };
    const { outputs } = await this.graph.run(arrays);
    const scores = row(outputs.scores, 0);
    if (this.scale) return { value: this.scale[0] + this.scale[1] * scores[0] };
    const cooled = scores.map((score) => score / this.temperature);
    const probabilities = this.several ? Array.from(cooled, (score) => 1 / (1 + Math.exp(-score))) : [...softmax(cooled)];
    const chosen = this.several
      ? this.labels.filter((_, place) => probabilities[place] >= (this.thresholds[place] ?? 0.5))
      : [this.labels[argmax(probabilities)]];
    return { labels: chosen, probabilities };
  }

  sequence(words, text) {
    return this.words ? this.words.arrays(words) : sequence(this.tokenizer.ids(text));
  }
}
