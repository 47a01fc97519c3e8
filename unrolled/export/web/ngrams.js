// Hashed n-grams of a text: words, their character n-grams, and pairs of words, as unrolled.text.ngrams has them.

import { points } from "./text.js";

const LETTERS = [2, 5]; // lengths of character n-grams
const encoder = new TextEncoder();

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

export function crc32(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = (sum >>> 8) ^ TABLE[(sum ^ byte) & 0xff];
  return (sum ^ 0xffffffff) >>> 0;
}

// The arrays of one text in its words, for an EmbeddingBag; their weights have the length 1.
export function ngramArrays(words, buckets) {
  const lowered = words.map((word) => word.toLowerCase());
  const hashes = lowered.flatMap(wordNgrams);
  for (let at = 0; at + 1 < lowered.length; at += 1) hashes.push(crc32(encoder.encode(`${lowered[at]} ${lowered[at + 1]}`)));
  const data = hashes.map((hash) => hash % buckets);
  const weight = 1 / Math.sqrt(Math.max(1, data.length));
  return {
    ngrams: { data, shape: [data.length] },
    ngram_starts: { data: [0], shape: [1] },
    ngram_weights: { data: data.map(() => weight), shape: [data.length] },
  };
}

function wordNgrams(word) {
  const whole = points(word);
  const spelt = whole.length > 40 ? ["^", ...whole.slice(0, 20), "…", ...whole.slice(-20), "$"] : ["^", ...whole, "$"];
  const runs = new Set();
  for (let size = LETTERS[0]; size <= LETTERS[1]; size += 1) {
    for (let at = 0; at + size <= spelt.length; at += 1) runs.add(spelt.slice(at, at + size).join(""));
  }
  return [crc32(encoder.encode(word)), ...Array.from(runs, (run) => crc32(encoder.encode(`\0${run}`)))];
}
