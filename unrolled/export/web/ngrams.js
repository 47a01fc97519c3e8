// Hashed n-grams of a text: words, their character n-grams, and runs of words, as unrolled.text.ngrams has them.

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

// The n-grams of one text that the wide path reads: each bucket once, weighing 1 + ln of how often it occurs; see
// unrolled.data.batching.ngrams.
export function wideArrays(words, { words: longest, letters, buckets, apart }) {
  const lowered = words.map((word) => word.toLowerCase());
  const runs = [];
  for (let size = 1; size <= longest; size += 1) {
    for (let at = 0; at + size <= lowered.length; at += 1) {
      runs.push(crc32(encoder.encode(lowered.slice(at, at + size).join(" "))));
    }
  }
  const spelt = letters.length ? lowered.flatMap((word) => letterNgrams(word, ...letters)) : [];
  const groups = [runs, spelt].map((hashes) => weighed(hashes, buckets));
  const lengths = groups.map((group) => group.reduce((sum, [, weight]) => sum + weight * weight, 0));
  const total = lengths[0] + lengths[1];
  const entries = groups.flatMap((group, place) => {
    const length = Math.sqrt(apart ? lengths[place] : total);
    return group.map(([bucket, weight]) => [bucket, weight / length]);
  });
  return {
    wide_ngrams: { data: entries.map(([bucket]) => bucket), shape: [entries.length] },
    wide_starts: { data: [0], shape: [1] },
    wide_weights: { data: entries.map(([, weight]) => weight), shape: [entries.length] },
  };
}

function weighed(hashes, buckets) {
  const counts = new Map();
  for (const hash of hashes) counts.set(hash % buckets, (counts.get(hash % buckets) ?? 0) + 1);
  return Array.from(counts, ([bucket, count]) => [bucket, 1 + Math.log(count)]).sort((a, b) => a[0] - b[0]);
}

function wordNgrams(word) { return [crc32(encoder.encode(word)), ...letterNgrams(word, ...LETTERS)]; }

function letterNgrams(word, low, high) {
  const whole = points(word);
  const spelt = whole.length > 40 ? ["^", ...whole.slice(0, 20), "…", ...whole.slice(-20), "$"] : ["^", ...whole, "$"];
  const runs = new Set();
  for (let size = low; size <= high; size += 1) {
    for (let at = 0; at + size <= spelt.length; at += 1) runs.add(spelt.slice(at, at + size).join(""));
  }
  return Array.from(runs, (run) => crc32(encoder.encode(`\0${run}`)));
}
