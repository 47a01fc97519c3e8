// Text as Python sees it: white space, code points, lower case.

const BLANK = "\\p{White_Space}\\x1c-\\x1f"; // what str.split takes for white space
const BLANKS = new RegExp(`[${BLANK}]+`, "u");
export const WORDS = new RegExp(`\\n|[^${BLANK}]+`, "gu"); // \n|\S+

export function splitBlanks(text) { return text.split(BLANKS).filter((word) => word !== ""); }

export function checkText(text) {
  if (/\p{Cs}/u.test(text)) throw new Error("The text has half a character, a lone surrogate.");
}

export function points(text) { return Array.from(text); }
