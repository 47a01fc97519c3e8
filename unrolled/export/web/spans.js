// Spans marked by tags, as unrolled.metrics.spans has them: B-NP I-NP O is one NP of two words.

const MARKS = { // of the first, inner, last and only word of a span
  IOB1: ["I", "I", "I", "I"],
  IOB2: ["B", "I", "I", "B"],
  BIOES: ["B", "I", "E", "S"],
  BILOU: ["B", "I", "L", "U"],
};

// The mark and the kind of a tag; O and "" outside spans.
export function partsOf(tag) {
  const found = /^([BIESLU])(?:-(.+))?$/su.exec(tag);
  return found ? [found[1], found[2] ?? ""] : ["O", ""];
}

// {kind, start, end} of the spans of a sentence's tags, legal or not.
export function spansOf(tags) {
  const spans = [];
  let before = ["O", ""];
  tags.forEach((tag, at) => {
    const [mark, kind] = partsOf(tag);
    const goesOn = !"BSU".includes(mark) && before[0] !== "O" && !"ESLU".includes(before[0]) && before[1] === kind;
    if (mark !== "O" && goesOn) spans.at(-1).end = at + 1;
    else if (mark !== "O") spans.push({ kind, start: at, end: at + 1 });
    before = [mark, kind];
  });
  return spans;
}

// The tags that mark spans in a sentence of that length.
export function tagsOf(spans, length, scheme) {
  const [first, inside, last, alone] = MARKS[scheme];
  const tags = Array(length).fill("O");
  let before = { kind: "", start: 0, end: 0 };
  for (const span of spans) {
    const size = span.end - span.start;
    const marks = size > 1 ? [first, ...Array(size - 2).fill(inside), last] : [alone];
    if (scheme === "IOB1" && span.start > 0 && before.end === span.start && before.kind === span.kind) marks[0] = "B";
    marks.forEach((mark, place) => { tags[span.start + place] = span.kind ? `${mark}-${span.kind}` : mark; });
    before = span;
  }
  return tags;
}
