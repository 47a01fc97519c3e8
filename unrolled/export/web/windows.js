// Long recordings, cut into windows where they are quietest.

export const SECONDS = 30; // of a window
const SMOOTH = 20; // frames: a fifth of a second

// [start, samples] of each part of at most `seconds`.
export function cutRecording(samples, rate, seconds = SECONDS) {
  const hop = Math.floor(rate / 100);
  const most = Math.max(Math.floor(rate / 40), Math.floor(seconds * rate));
  const parts = [];
  let start = 0;
  while (samples.length - start > most) {
    const levels = Float64Array.from({ length: Math.floor(most / hop) }, (_, frame) => {
      let sum = 0;
      for (let at = start + frame * hop; at < start + (frame + 1) * hop; at += 1) sum += samples[at] * samples[at];
      return sum;
    });
    const end = start + hop * firstCut(levels, Math.max(2, levels.length - 1), SMOOTH);
    parts.push([start, samples.subarray(start, end)]);
    start = end;
  }
  if (samples.length > start) parts.push([start, samples.subarray(start)]);
  return parts;
}

// The place in the second half of `most` steps where the weight around is least.
export function firstCut(weight, most, smooth) {
  const width = Math.max(1, Math.min(smooth, Math.floor(most / 4)));
  const at = (place) => weight[Math.min(weight.length - 1, Math.max(0, place))];
  const middle = Math.floor(most / 2);
  let [best, least] = [middle, Infinity];
  for (let place = middle; place < most; place += 1) {
    let sum = 0;
    for (let k = 0; k < width; k += 1) sum += at(place - Math.floor(width / 2) + k);
    if (sum < least) [best, least] = [place, sum];
  }
  return best;
}

export function isSilent(samples) { return samples.every((sample) => Math.abs(sample) < 1e-4); }
