// A conditional random field: the likeliest tags, and the probability of each.

import { argmax, logAdd } from "./arrays.js";

const FORBIDDEN = -1e4; // score of a forbidden transition: finite, so that a path always remains

export class Transitions {
  constructor(stored) {
    const masked = (scores, mask) => scores.map((score, place) => (mask?.[place] ? FORBIDDEN : score));
    this.between = stored.transitions.map((scores, from) => masked(scores, stored.forbidden?.[from]));
    this.start = masked(stored.start, stored.forbidden_first);
    this.end = masked(stored.end, stored.forbidden_last);
  }

  // The likeliest tags (Viterbi); `rows` are the scores of the tags at each step.
  best(rows) {
    if (!rows.length) return [];
    let best = this.start.map((score, tag) => score + rows[0][tag]);
    const came = rows.slice(1).map((scores) => {
      const from = this.start.map((_, to) => argmax(best.map((score, tag) => score + this.between[tag][to])));
      best = from.map((tag, to) => best[tag] + this.between[tag][to] + scores[to]);
      return from;
    });
    const path = [argmax(best.map((score, tag) => score + this.end[tag]))];
    for (const from of came.reverse()) path.unshift(from[path[0]]);
    return path;
  }

  // The probability of each tag at each step: the forward–backward algorithm.
  marginals(rows) {
    if (!rows.length) return [];
    const tags = this.start.map((_, tag) => tag);
    const sum = (scores) => scores.reduce(logAdd, -Infinity);
    const forward = [this.start.map((score, tag) => score + rows[0][tag])];
    for (const scores of rows.slice(1)) {
      const before = forward.at(-1);
      forward.push(tags.map((to) => sum(tags.map((from) => before[from] + this.between[from][to])) + scores[to]));
    }
    const backward = [this.end];
    for (const scores of rows.slice(1).reverse()) {
      const after = backward[0];
      backward.unshift(tags.map((from) => sum(tags.map((to) => this.between[from][to] + scores[to] + after[to]))));
    }
    const total = sum(forward.at(-1).map((score, tag) => score + this.end[tag]));
    return forward.map((scores, step) => scores.map((score, tag) => Math.exp(score + backward[step][tag] - total)));
  }
}
