// A tagger: a text in, a tag for each of its words out.

import { argmax, row, softmax } from "./arrays.js";
import { Transitions } from "./crf.js";
import { spansOf, tagsOf } from "./spans.js";
import { wordsOf } from "./tagged-words.js";
import { Words } from "./words.js";

export function modelOf(manifest, graphs) { return new TagModel(manifest, graphs); }

class TagModel {
  constructor(manifest, graphs) {
    const { words, features, inner, tags, scheme } = manifest.assets;
    if (!words || features.length) throw new Error("This model reads more than words, and this page has a box for text.");
    this.words = new Words(words);
    this.learnt = (inner ?? tags).specials.concat((inner ?? tags).tokens);
    Object.assign(this, { inner: Boolean(inner), scheme, graph: graphs.whole });
    this.crf = manifest.crf ? new Transitions(manifest.crf) : null;
    this.alike = this.learnt.map((name) => this.learnt.map((other) => this.outer(name) === this.outer(other)));
  }

  get facts() { return [`${this.learnt.length} tags`]; }

  // The tag of the data that one of the network's becomes: with spans, B with S, and I with E.
  outer(name) { return this.inner ? name.replace(/^S/u, "B").replace(/^E/u, "I") : name; }

  // [{word, tag, probability}, …]
  async answer(text) {
    const words = wordsOf(text);
    if (!words.length) return [];
    const { outputs } = await this.graph.run(this.words.arrays(words));
    const rows = words.map((_, step) => Array.from(row(outputs.scores, step)));
    const path = this.crf ? this.crf.best(rows) : rows.map(argmax);
    const chances = this.crf ? this.crf.marginals(rows) : rows.map((scores) => [...softmax(scores)]);
    const tags = this.names(path);
    return words.map((word, step) => {
      const sum = chances[step].reduce((total, chance, tag) => total + (this.alike[path[step]][tag] ? chance : 0), 0);
      return { word, tag: tags[step], probability: Math.min(1, sum) };
    });
  }

  // Tags as the data has them, of the numbers that the network gave.
  names(path) {
    const tags = path.map((tag) => this.learnt[tag]);
    return this.inner && this.scheme ? tagsOf(spansOf(tags), tags.length, this.scheme) : tags;
  }
}
