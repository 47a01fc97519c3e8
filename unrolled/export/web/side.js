// One side of a translation: from text to tokens and back, as unrolled.tasks.shared.side has it.

import { splitBlanks } from "./text.js";
import { tokenizerOf } from "./tokenizers.js";

export class Side {
  constructor(stored) {
    this.tokenizer = tokenizerOf(stored.tokenizer);
    this.form = stored.form;
    [this.begin, this.end] = ["<bos>", "<eos>"].map((name) => this.tokenizer.vocabulary.numbers.get(name));
  }

  // Single blanks, one form of Unicode; before sub-words stands a blank.
  prepared(text) {
    const tidy = splitBlanks(text).join(" ");
    const formed = this.form ? tidy.normalize(this.form) : tidy;
    return formed && this.tokenizer.level === "bpe" ? ` ${formed}` : formed;
  }

  ids(text) { return this.tokenizer.ids(this.prepared(text)); }

  // The text of tokens; where `instead` has a text for a token, that one.
  text(ids, instead = []) {
    const words = () => ids.map((number, place) => instead[place] ?? this.tokenizer.token(number));
    const other = instead.some((one) => one !== null);
    const text = other ? words().join(this.tokenizer.level === "char" ? "" : " ") : this.tokenizer.decode(ids);
    const tidy = splitBlanks(text).join(" ");
    return ["NFD", "NFKD"].includes(this.form) ? tidy.normalize("NFC") : tidy;
  }

  // The text of each token of a source: of an unknown word the word itself, of a sub-word its whole word.
  words(text) {
    const prepared = this.prepared(text);
    if (this.tokenizer.level === "char") return Array.from(prepared);
    const words = splitBlanks(prepared);
    return this.tokenizer.level === "bpe" ? words.flatMap((word) => this.tokenizer.ids(` ${word}`).map(() => word)) : words;
  }
}
