// Choosing a token from a distribution: temperature, and nucleus sampling (top-p), as unrolled.search.Sampling does.

import { argmax, largest, softmax, top } from "./arrays.js";

const TINY = 1.1754943508222875e-38; // the smallest normal float32

// The token for a number in [0, 1); −1 where there is none to choose.
export function choose(logProbs, { temperature, topP }, uniform) {
  if (temperature === 0) {
    const best = argmax(logProbs);
    return logProbs[best] > -Infinity ? best : -1;
  }
  const probabilities = softmax(kept(cooled(logProbs, temperature), topP));
  const sums = cumulative(probabilities);
  const wanted = uniform * sums[sums.length - 1];
  return sums.findIndex((sum) => sum > wanted);
}

// l / τ in float32; below 0.01 from the maximum, so that the likeliest token stays finite.
function cooled(logProbs, temperature) {
  if (temperature === 1) return logProbs;
  const most = temperature < 0.01 ? largest(logProbs) : 0;
  const divisor = Math.fround(Math.max(temperature, TINY));
  return logProbs.map((score) => Math.fround(score - most) / divisor);
}

// The fewest likeliest tokens whose probabilities add up to at least `share`; −∞ at the others.
function kept(scores, share) {
  if (share >= 1) return scores;
  const order = top(scores, scores.length);
  const sums = cumulative(softmax(order.map((place) => scores[place])));
  const found = scores.slice();
  order.forEach((place, rank) => { if (rank > 0 && sums[rank - 1] >= share) found[place] = -Infinity; });
  return found;
}

function cumulative(values) {
  let sum = 0;
  return Float64Array.from(values, (value) => (sum += value));
}
