// Tokenizers: text ↔ ids at the levels char, word, symbols and bpe, as unrolled.text has them.

import { checkText, WORDS } from "./text.js";

const UNKNOWN = "<unk>";
const REPLACEMENT = "\ufffd";

export function tokenizerOf(stored) {
  const kinds = { char: CharTokenizer, word: WordTokenizer, symbols: WordTokenizer, bpe: BPETokenizer };
  const Kind = kinds[stored.level];
  if (!Kind) throw new Error(`This page does not know the level ${stored.level}.`);
  return new Kind(stored);
}

// Tokens and their numbers, the special ones first; <unk>, where there is one, is 0.
export class Vocabulary {
  constructor(tokens, specials) {
    this.specials = specials;
    this.tokens = [...specials, ...tokens];
    this.unknown = specials.includes(UNKNOWN) ? 0 : null;
    this.numbers = new Map(this.tokens.map((token, number) => [token, number]));
    this.ofText = new Map(this.numbers); // no text means a special token
    for (const special of specials) if (special !== UNKNOWN) this.ofText.delete(special);
  }

  ids(tokens) { return Array.from(tokens, (token) => this.ofText.get(token) ?? this.unknown); }

  isControl(number) { return number < this.specials.length && number !== this.unknown; }
}

class Tokenizer {
  constructor(stored, vocabulary) {
    this.level = stored.level;
    this.lowercase = stored.lowercase;
    this.vocabulary = vocabulary;
  }

  prepared(text) {
    checkText(text);
    return this.lowercase ? text.toLowerCase() : text;
  }

  token(number) { return this.vocabulary.tokens[number]; }

  decode(ids) {
    const stream = new StreamDecoder(this);
    return ids.map((number) => stream.feed(number)).join("") + stream.finish();
  }
}

// Each code point is a token.
class CharTokenizer extends Tokenizer {
  constructor(stored) { super(stored, new Vocabulary(stored.vocabulary.tokens, stored.vocabulary.specials)); }

  ids(text) { return this.vocabulary.ids(this.prepared(text)); }

  piece(number) { return number === this.vocabulary.unknown ? REPLACEMENT : this.token(number); }
}

// The longest runs without white space; "\n" is a token of its own.
class WordTokenizer extends Tokenizer {
  constructor(stored) {
    super(stored, new Vocabulary(stored.vocabulary.tokens, stored.vocabulary.specials));
    this.newline = this.vocabulary.ofText.get("\n") ?? null;
  }

  ids(text) { return this.vocabulary.ids(this.prepared(text).match(WORDS) ?? []); }

  piece(number, previous) {
    const joined = previous === null || (this.newline !== null && [number, previous].includes(this.newline));
    return joined ? this.token(number) : ` ${this.token(number)}`;
  }
}

// Byte-pair encoding over UTF-8 bytes, as the `tokenizers` library does it.
const PRE_TOKENS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

class BPETokenizer extends Tokenizer {
  constructor(stored) {
    const { vocab, merges } = JSON.parse(stored.library).model;
    const tokens = Object.keys(vocab).sort((a, b) => vocab[a] - vocab[b]);
    super(stored, new Vocabulary(tokens, stored.specials));
    this.first = stored.specials.length;
    const pairs = merges.map((merge) => (Array.isArray(merge) ? merge : merge.split(" ")));
    this.ranks = new Map(pairs.map(([left, right], rank) => [`${left} ${right}`, rank]));
    const letters = byteLetters();
    this.letterOf = letters;
    const byteOf = new Map(letters.map((letter, byte) => [letter, byte]));
    this.bytes = this.vocabulary.tokens.map((token, number) =>
      Uint8Array.from(number < this.first ? [] : token, (letter) => byteOf.get(letter)));
  }

  ids(text) {
    const encoder = new TextEncoder();
    const found = [];
    for (const [word] of this.prepared(text).matchAll(PRE_TOKENS)) {
      const letters = Array.from(encoder.encode(word), (byte) => this.letterOf[byte]);
      for (const token of this.merged(letters)) found.push(this.vocabulary.numbers.get(token));
    }
    return found;
  }

  // Pairs become one token, those that training joined first before the others.
  merged(parts) {
    for (;;) {
      let best = Infinity;
      let pair = null;
      for (let place = 0; place + 1 < parts.length; place += 1) {
        const rank = this.ranks.get(`${parts[place]} ${parts[place + 1]}`) ?? Infinity;
        if (rank < best) [best, pair] = [rank, [parts[place], parts[place + 1]]];
      }
      if (pair === null) return parts;
      const joined = [];
      for (let place = 0; place < parts.length; place += 1) {
        const here = parts[place] === pair[0] && parts[place + 1] === pair[1];
        joined.push(here ? pair[0] + pair[1] : parts[place]);
        if (here) place += 1;
      }
      parts = joined;
    }
  }

  piece(number) { return this.bytes[number]; }

  token(number) { return number < this.first ? super.token(number) : readable(this.bytes[number]); }
}

// Bytes as text; those that are only part of a character as \xe6.
function readable(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const letter = [1, 2, 3, 4].map((size) => whole(bytes.subarray(at, at + size))).find((found) => found !== null);
    text += letter ?? `\\x${bytes[at].toString(16).padStart(2, "0")}`;
    at += letter ? new TextEncoder().encode(letter).length : 1;
  }
  return text;
}

// The one character that bytes are, or null.
function whole(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

// The library's printable character for each byte: itself if printable, otherwise the next from U+0100 on.
function byteLetters() {
  const printable = (byte) => (byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte < 0xad) || byte >= 0xae;
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    if (printable(byte)) return String.fromCharCode(byte);
    others += 1;
    return String.fromCharCode(255 + others);
  });
}

// Text from ids that arrive one at a time; a character that is split over tokens waits for its last byte.
export class StreamDecoder {
  constructor(tokenizer) {
    this.tokenizer = tokenizer;
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    this.previous = null;
  }

  feed(number) {
    if (this.tokenizer.vocabulary.isControl(number)) return "";
    const piece = this.tokenizer.piece(number, this.previous);
    this.previous = number;
    return typeof piece === "string" ? piece : this.decoder.decode(piece, { stream: true });
  }

  finish() { return this.decoder.decode(); }
}
