// Words and signs of a text, with their letters: the input of classifiers and taggers, as unrolled.text.words has it.

import { checkText, points, splitBlanks } from "./text.js";
import { Vocabulary } from "./tokenizers.js";

const MOST_LETTERS = 40; // letters of a word that count: its beginning and its end
const JOINING = new Set("'’-.,:/@_&+"); // between letters or digits they are part of a word: don't, 3.5
// Scripts written without blanks: every character is a token.
const UNSPACED = [
  [0x0e00, 0x0eff], // Thai, Lao
  [0x1000, 0x109f], // Myanmar
  [0x1780, 0x17ff], // Khmer
  [0x3040, 0x30ff], // kana
  [0x3400, 0x9fff], // Han
  [0xf900, 0xfaff],
  [0x20000, 0x3ffff],
];

// The words and signs of a text, in any script: signs at the edges of a word stand alone, inside it they stay.
export function splitWords(text) {
  checkText(text);
  return splitBlanks(text).flatMap(splitPiece);
}

function splitPiece(piece) {
  const letters = points(piece);
  const kinds = letters.map(kindOf);
  const words = [];
  let start = 0; // of the current word
  kinds.forEach((kind, at) => {
    const before = kinds[at + 1] === "letter";
    const inside = at > start && kind === "joining" && before;
    const clitic = at === 0 && "'’".includes(letters[at]) && before;
    if (kind === "letter" || inside || clitic) return;
    if (at > start) words.push(letters.slice(start, at).join(""));
    words.push(letters[at]);
    start = at + 1;
  });
  if (start < letters.length) words.push(letters.slice(start).join(""));
  return words;
}

function kindOf(letter) {
  if (JOINING.has(letter)) return "joining";
  if (/[\p{P}\p{S}]/u.test(letter)) return "sign";
  const code = letter.codePointAt(0);
  return UNSPACED.some(([low, high]) => low <= code && code <= high) ? "alone" : "letter";
}

// Two vocabularies: of words, and of the letters they are spelt with.
export class Words {
  constructor(stored) {
    this.vocabulary = new Vocabulary(stored.words, ["<unk>"]);
    this.letters = new Vocabulary(stored.letters, ["<unk>"]);
    this.lowercase = stored.lowercase;
  }

  // The arrays of one sentence; a graph takes the letters only if its model reads them.
  arrays(words) {
    const ids = this.vocabulary.ids(words.map((word) => (this.lowercase ? word.toLowerCase() : word)));
    const distinct = [...new Set(words)];
    const spelt = words.map((word) => distinct.indexOf(word));
    const spellings = distinct.length ? distinct.map((word) => this.spelling(word)) : [[0]];
    const width = Math.max(...spellings.map((one) => one.length));
    const table = spellings.flatMap((one) => [...one, ...Array(width - one.length).fill(0)]);
    return {
      ...sequence(ids),
      spellings: { data: table, shape: [spellings.length, width] },
      spelling_lengths: { data: spellings.map((one) => one.length), shape: [spellings.length] },
      spelt: { data: spelt.length ? spelt : [0], shape: [1, Math.max(1, spelt.length)] },
    };
  }

  spelling(word) {
    const letters = points(word);
    const half = MOST_LETTERS / 2;
    return this.letters.ids(letters.length <= MOST_LETTERS ? letters : [...letters.slice(0, half), ...letters.slice(-half)]);
  }
}

// One sequence of ids as the arrays of a batch; an empty one has one step that does not count.
export function sequence(ids) {
  return {
    inputs: { data: ids.length ? ids : [0], shape: [1, Math.max(1, ids.length)] },
    lengths: { data: [ids.length], shape: [1] },
  };
}
