// Beam search for one input, as unrolled.search.beam_search does it: ranked by log P / ((5 + length) / 6), ended outputs
// before those that were cut.

import { row, takeRows, top } from "./arrays.js";

// `step(tokens, state)` gives {logProbs: {data, shape: [W, V]}, attention or null, state}.
// The best outputs: [{tokens, score, logProb, ended, attention}, …].
export async function beamSearch(step, state, { begin, end, forbidden, most, size, nBest }) {
  const search = new Search({ end, forbidden, most, size, nBest });
  let last = [begin];
  while (!search.done()) {
    const found = await step(last, state);
    const kept = search.advance(found);
    if (!kept.length) break;
    state = found.state.map((part) => takeRows(part, kept.map((one) => one.origin)));
    last = kept.map((one) => one.token);
  }
  return search.best();
}

class Search {
  constructor(limits) {
    Object.assign(this, limits);
    this.live = [{ total: 0, tokens: [], attention: [] }];
    this.outputs = []; // the best first
  }

  get time() { return this.live[0].tokens.length; }

  // One step of all hypotheses; those that go on, with the hypothesis and the token of each.
  advance({ logProbs, attention }) {
    const rows = this.live.map((_, place) => this.allowed(row(logProbs, place)));
    if (attention) this.live.forEach((one, place) => { one.attention = [...one.attention, Array.from(row(attention, place))]; });
    const candidates = this.candidates(rows);
    const ends = candidates.filter((one) => one.token === this.end);
    const ranked = candidates.slice(0, this.size).filter((one) => one.token === this.end);
    ranked.forEach((one) => this.finish(one, true));
    if (this.time + 1 === this.most) this.finishLast(candidates, ranked, rows);
    const going = candidates.filter((one) => !ends.includes(one)).slice(0, this.size);
    this.live = going.map(({ total, origin, token }) => {
      const before = this.live[origin];
      return { total, tokens: [...before.tokens, token], attention: before.attention };
    });
    return going;
  }

  allowed(logProbs) {
    const scores = logProbs.slice();
    for (const token of this.forbidden) scores[token] = -Infinity;
    return scores;
  }

  // The best continuations, the best first; of equal ones the first comes first.
  candidates(rows) {
    const found = rows.flatMap((scores, origin) => top(scores, 2 * this.size)
      .map((token) => ({ origin, token, total: this.live[origin].total + scores[token] })));
    const order = top(found.map((one) => one.total), 2 * this.size);
    return order.map((place) => found[place]).filter((one) => one.total > -Infinity);
  }

  // At the limit every hypothesis may still end, though others rank before it; the best are cut.
  finishLast(candidates, ranked, rows) {
    candidates.filter((one) => one.token !== this.end).forEach((one) => this.finish(one, false));
    if (this.size === 1) return; // greedy search ends only where the end is likeliest
    rows.forEach((scores, origin) => {
      const total = this.live[origin].total + scores[this.end];
      const done = ranked.some((one) => one.origin === origin);
      if (!done && total > -Infinity) this.finish({ origin, token: this.end, total }, true);
    });
  }

  finish({ origin, token, total }, ended) {
    const { tokens, attention } = this.live[origin];
    const output = { tokens: ended ? tokens : [...tokens, token], logProb: total, score: total / divisor(tokens.length + 1), ended, attention };
    const better = (one) => one.ended > ended || (one.ended === ended && one.score >= output.score); // of equal ones the first
    this.outputs.splice(this.outputs.filter(better).length, 0, output);
    this.outputs.length = Math.min(this.outputs.length, this.size);
  }

  // True if no hypothesis can come to rank among the best any more.
  done() {
    if (!this.live.length) return true;
    if (this.time >= this.most) return true;
    const ended = this.outputs.filter((one) => one.ended);
    if (this.size === 1) return ended.length >= 1;
    const bound = Math.max(...this.live.map(({ total }) => total / divisor(total > 0 ? this.time + 1 : this.most)));
    return ended.length >= this.nBest && ended[this.nBest - 1].score >= bound;
  }

  best() { return this.outputs.slice(0, this.nBest); }
}

function divisor(length) { return (5 + length) / 6; }
