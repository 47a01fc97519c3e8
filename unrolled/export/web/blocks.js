// A causal recogniser in use: samples as they come, in blocks of one size whatever pieces they came in.

import { joined } from "./sound.js";

export const LIVE = 16; // frames that are read together: 160 ms of sound
export const FILE = 1024; // of a file nobody waits for them

export class Blocks {
  // `features(samples)` gives frames {data, shape}.
  constructor({ features, step, factor, context, rate, width, shape }, block = LIVE) {
    Object.assign(this, { features, step, factor, keep: context, width, shape });
    this.block = Math.ceil(block / factor) * factor;
    [this.hop, this.window] = [Math.floor(rate / 100), Math.floor(rate / 40)];
    this.samples = new Float32Array(0);
    this.waiting = new Float32Array(0); // frames that were not read
    this.context = new Float32Array(0); // frames that were read, and are needed again
    this.state = step.initial(1);
    this.frames = 0;
    this.heard = 0;
  }

  // The log-probabilities {data, shape} of each block that is now complete.
  async feed(samples) {
    this.heard += samples.length;
    this.samples = joined([this.samples, samples]);
    await this.takeFrames(this.block);
    const found = [];
    while (this.waiting.length >= this.block * this.width) found.push(await this.advance(this.block));
    return found;
  }

  // Those of what was left over.
  async finish() {
    await this.takeFrames(1);
    return this.waiting.length ? [await this.advance(this.waiting.length / this.width)] : [];
  }

  // Frames of `number · hop` samples at a time, while there are samples enough.
  async takeFrames(number) {
    const whole = (number - 1) * this.hop + this.window;
    const short = number === 1 && this.frames === 0 && !this.waiting.length && this.heard > 0 && this.heard < this.window;
    const needed = short ? 1 : whole;
    while (this.samples.length >= needed) {
      const { data } = await this.features(this.samples.subarray(0, whole));
      this.waiting = joined([this.waiting, data]);
      this.samples = this.samples.slice(number * this.hop);
    }
  }

  async advance(count) {
    const together = joined([this.context, this.waiting.subarray(0, count * this.width)]);
    this.waiting = this.waiting.slice(count * this.width);
    const [seen, all] = [this.context.length / this.width, together.length / this.width];
    const first = Math.floor(seen / this.factor);
    const places = Array.from({ length: Math.ceil(all / this.factor) - first }, (_, place) => first + place);
    const arrays = { inputs: { data: together, shape: [1, all, ...this.shape] }, places: { data: places, shape: [places.length] } };
    const { outputs, state } = await this.step.run(arrays, this.state);
    this.state = state;
    this.context = together.slice(together.length - Math.min(this.keep, all) * this.width);
    this.frames += count;
    return { data: outputs.log_probs.data, shape: outputs.log_probs.shape.slice(1) };
  }
}
