// The words of a text for a tagger, as unrolled.tasks.tag.documents has them: addresses, @names, #tags and letters with
// their marks stay whole.

import { points, splitBlanks } from "./text.js";
import { splitWords } from "./words.js";

const W = "[\\p{L}\\p{N}_]"; // \w in Python
const EDGE = `(?:(?<=${W})(?!${W})|(?<!${W})(?=${W}))`; // \b
const SPACED = `(?:(?![\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u9fff])${W})`;
const STAYS_WHOLE = new RegExp(
  [
    `(?:${EDGE}[A-Za-z][A-Za-z0-9+.\\-]{0,20}://|${EDGE}www\\.)[^\\p{White_Space}\\x1c-\\x1f<>"“”«»|]+`, // https://x.y
    `${EDGE}[\\p{L}\\p{N}_.+\\-]{1,64}@[\\p{L}\\p{N}_\\-]{1,64}(?:\\.[\\p{L}\\p{N}_\\-]{1,64})+`, // a.b@c.org
    `(?<!${W})@${SPACED}+`, // @name
    `(?<!${W})#${SPACED}+`, // #tag
  ].join("|"),
  "gu",
);
const ENDS = ".,;:!?'\")]}…"; // signs that end a sentence, not an address
const JOINER = "\u200d"; // makes one emoji of several

export function wordsOf(text) { return splitBlanks(text).flatMap(partsOf); }

function partsOf(text) {
  const parts = [];
  let [begin, at] = [0, 0];
  for (;;) {
    STAYS_WHOLE.lastIndex = at;
    const found = STAYS_WHOLE.exec(text);
    if (found === null) return [...parts, ...joinedWords(text.slice(begin))];
    const whole = withoutEnds(found[0]);
    at = found.index + whole.length;
    if (points(whole).length > 1) {
      parts.push(...joinedWords(text.slice(begin, found.index)), whole);
      begin = at;
    }
    at = Math.max(at, found.index + points(found[0])[0].length);
  }
}

function withoutEnds(whole) {
  const count = (sign) => whole.split(sign).length - 1;
  while (ENDS.includes(whole.at(-1)) && !(whole.at(-1) === ")" && count("(") >= count(")"))) whole = whole.slice(0, -1);
  return whole;
}

function joinedWords(text) {
  const whole = [];
  for (const part of splitWords(text)) {
    const letters = points(part);
    let marks = 0;
    while (whole.length && marks < letters.length && goesOn(letters[marks])) marks += 1;
    if (whole.length) whole[whole.length - 1] += letters.slice(0, marks).join("");
    const rest = letters.slice(marks).join("");
    if (rest && whole.length && whole.at(-1).endsWith(JOINER) && /^\p{So}/u.test(rest)) whole[whole.length - 1] += rest;
    else if (rest) whole.push(rest);
  }
  return whole;
}

// True for a character that belongs to the one before it: a mark, a joiner, a skin tone.
function goesOn(letter) { return letter === JOINER || /[\p{M}\u{1f3fb}-\u{1f3ff}]/u.test(letter); }
