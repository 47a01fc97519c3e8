// Equations as MathML: W_f x + U_f h_{t−1} + b_f with real subscripts, read aloud by screen readers.

const MATH = "http://www.w3.org/1998/Math/MathML";
const PIECES = /\s*([A-Za-z]+|[σφ]|[‖]|\d+(?:\.\d+)?|nan|inf|[^\sA-Za-z0-9])(?:_(\{[^}]*\}|[A-Za-z]+))?/gu;

function element(tag, ...children) {
  const made = document.createElementNS(MATH, tag);
  made.append(...children);
  return made;
}

// One name, number or sign.
function atom(text) {
  if (/^[\d]/.test(text)) return element("mn", text);
  if (/^[\p{L}]/u.test(text)) {
    const name = element("mi", text);
    if (/^[WUb]$/.test(text)) name.setAttribute("mathvariant", "normal");
    return name;
  }
  const sign = element("mo", text);
  if ("()[]".includes(text)) sign.setAttribute("stretchy", "false");
  return sign;
}

function row(text) {
  const parts = [];
  let before = "(";
  for (const [, piece, below] of text.matchAll(PIECES)) {
    const made = atom(piece);
    if (piece === "−" && "(·=".includes(before)) made.setAttribute("form", "prefix");
    parts.push(below === undefined ? made : element("msub", made, row(below.replace(/[{}]/g, ""))));
    before = piece;
  }
  return element("mrow", ...parts);
}

export function math(text) {
  const made = element("math", row(text));
  made.setAttribute("display", "inline");
  return made;
}
