// From log-probabilities of frames to labels: the best path, prefix beam search, and the confidence of words.

import { argmax, logAdd, row } from "./arrays.js";

const BLANK = 0;
const MARGIN = 10; // nats below the best beginning; docs/decode.md has what it costs

// The likeliest label of each frame, repeated ones as one, without blanks. Posteriors are {data, shape: [T, V]}.
export function bestPath(posteriors) {
  const [labels, spans] = [[], []];
  let score = 0;
  let before = BLANK;
  for (let frame = 0; frame < posteriors.shape[0]; frame += 1) {
    const here = row(posteriors, frame);
    const label = argmax(here);
    score += here[label];
    if (label !== BLANK && label === before) spans[spans.length - 1][1] = frame + 1;
    else if (label !== BLANK) {
      labels.push(label);
      spans.push([frame, frame + 1]);
    }
    before = label;
  }
  return { labels, spans, score };
}

// The likeliest labelling: after each frame the `beam` best beginnings are kept, and paths that read the same are added
// up. Each beginning has two scores: of its paths that end in a blank, and of those that end in its last label. Only
// after a blank does the same label count again.
export function prefixSearch(posteriors, beam) {
  let beginnings = [{ parent: null, label: BLANK, children: new Map(), inBlank: 0, inLabel: -Infinity }];
  for (let frame = 0; frame < posteriors.shape[0]; frame += 1) {
    const x = row(posteriors, frame);
    beginnings = bestOf(extended(beginnings, x), beam);
  }
  const best = beginnings[0];
  const labels = [];
  for (let node = best; node.parent !== null; node = node.parent) labels.unshift(node.label);
  return { labels, spans: aligned(posteriors, labels), score: total(best) };
}

function total(node) { return logAdd(node.inBlank, node.inLabel); }

// All beginnings after one more frame: those that stay, then those that are new.
function extended(beginnings, x) {
  const kept = new Set(beginnings);
  const longer = [];
  for (const node of beginnings) {
    const all = total(node);
    node.next = { inBlank: all + x[BLANK], inLabel: node.parent === null ? -Infinity : node.inLabel + x[node.label] };
  }
  for (const node of beginnings) {
    const all = total(node);
    for (let label = 1; label < x.length; label += 1) {
      const arrival = (node.parent !== null && node.label === label ? node.inBlank : all) + x[label];
      if (arrival === -Infinity) continue;
      const known = node.children.get(label);
      if (known && kept.has(known)) known.next.inLabel = logAdd(known.next.inLabel, arrival);
      else {
        const child = known ?? { parent: node, label, children: new Map() }; // a known one was dropped, and may come back
        child.next = { inBlank: -Infinity, inLabel: arrival };
        longer.push(child);
      }
    }
  }
  return [...beginnings, ...longer];
}

function bestOf(nodes, beam) {
  for (const node of nodes) Object.assign(node, node.next, { score: logAdd(node.next.inBlank, node.next.inLabel) });
  const ranked = nodes.filter((node) => node.score > -Infinity).sort((a, b) => b.score - a.score); // which is stable
  const kept = ranked.slice(0, beam).filter((node) => node.score >= ranked[0].score - MARGIN);
  for (const node of kept) node.parent?.children.set(node.label, node);
  return kept;
}

// The frames of each label on the likeliest path that reads the labels: the states are blank, label, blank, …
export function aligned(posteriors, labels) {
  if (!labels.length) return [];
  const states = [BLANK, ...labels.flatMap((label) => [label, BLANK])];
  const frames = posteriors.shape[0];
  const came = [];
  let scores = states.map((state, place) => (place < 2 ? row(posteriors, 0)[state] : -Infinity));
  for (let frame = 1; frame < frames; frame += 1) {
    const x = row(posteriors, frame);
    const from = states.map((state, place) => {
      const skips = place > 1 && state !== BLANK && state !== states[place - 2];
      const sources = [place, place - 1, ...(skips ? [place - 2] : [])].filter((one) => one >= 0);
      return sources.reduce((best, one) => (scores[one] > scores[best] ? one : best));
    });
    scores = states.map((state, place) => scores[from[place]] + x[state]);
    came.push(from);
  }
  let place = states.length - (scores[states.length - 1] >= scores[states.length - 2] ? 1 : 2);
  const spans = labels.map(() => null);
  for (let frame = frames - 1; frame >= 0; frame -= 1) {
    if (place % 2) {
      const label = (place - 1) / 2;
      spans[label] = [frame, spans[label] ? spans[label][1] : frame + 1];
    }
    if (frame) place = came[frame - 1][place];
  }
  return spans;
}

// The words that separators leave between them, as places in the labels. Symbols without a separator are a word each.
export function wordsBetween(labels, separator, symbols) {
  const parts = [[]];
  labels.forEach((label, place) => {
    if (label === separator) parts.push([]);
    else if (symbols && separator === null) parts.push([place]);
    else parts[parts.length - 1].push(place);
  });
  return parts.filter((part) => part.length);
}

// The probability that the frames around each word read this word and nothing else: they go from the end of the word
// before to the beginning of the word after, and separators may stand at both ends.
export function confidences(words, { labels, spans }, posteriors, separator) {
  return words.map((places, number) => {
    const begins = number ? spans[words[number - 1].at(-1)][1] : 0;
    const stops = number + 1 < words.length ? spans[words[number + 1][0]][0] : posteriors.shape[0];
    return readProbability(places.map((place) => labels[place]), posteriors, begins, stops, separator);
  });
}

// The forward recursion of CTC over some frames.
function readProbability(labels, posteriors, begins, stops, separator) {
  const states = [BLANK, ...labels.flatMap((label) => [label, BLANK])];
  const last = states.length - 1;
  let scores = states.map((_, place) => (place ? -Infinity : 0));
  for (let frame = begins; frame < stops; frame += 1) {
    const x = row(posteriors, frame);
    scores = states.map((state, place) => {
      let score = place ? logAdd(scores[place], scores[place - 1]) : scores[place];
      const skips = place > 1 && state !== BLANK && state !== states[place - 2];
      if (frame === begins && place > 1) score = -Infinity; // before the first frame nothing was read
      else if (skips) score = logAdd(score, scores[place - 2]);
      const outer = separator !== null && (place === 0 || place === last);
      return score + (outer ? logAdd(x[state], x[separator]) : x[state]);
    });
  }
  return Math.min(1, Math.exp(logAdd(scores[last], scores[last - 1])));
}
