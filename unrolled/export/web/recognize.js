// A recogniser: a recording in, text out, with the times and the confidence of its words.

import { Blocks, FILE } from "./blocks.js";
import { bestPath, confidences, prefixSearch, wordsBetween } from "./ctc.js";
import { joined, resampled, Resampler } from "./sound.js";
import { splitBlanks } from "./text.js";
import { cutRecording, isSilent, SECONDS } from "./windows.js";

export function modelOf(manifest, graphs) { return new RecognizeModel(manifest, graphs); }

class RecognizeModel {
  constructor(manifest, graphs) {
    const { reader, labels } = manifest.assets;
    if (reader.kind !== "audio") throw new Error("This model reads pictures or frames, and this page hears recordings.");
    Object.assign(this, { reader, graphs, names: labels.names, rate: reader.rate });
    this.symbols = labels.level === "symbols";
    this.separator = this.names.includes(" ") ? this.names.indexOf(" ") : null;
    this.glue = this.symbols || this.separator !== null ? " " : "";
    [this.factor, this.context] = [manifest.time_factor, manifest.context];
    this.hop = Math.floor(this.rate / 100);
    this.streams = Boolean(graphs.step);
  }

  get facts() { return [`${this.names.length - 1} labels`, `${this.rate.toLocaleString("en")} Hz`, this.streams ? "hears as you speak" : "hears whole recordings"]; }

  // The answer to samples at a rate. A beam of 1 is the best path.
  async answer({ samples, rate }, { beam = 1 } = {}) {
    const sound = resampled(Float32Array.from(samples), rate, this.rate);
    const parts = this.streams && sound.length > SECONDS * this.rate ? [await this.streamed(sound)] : await this.windows(sound);
    return this.read(parts, beam);
  }

  // The log-probabilities of each window that is not silent, its number of frames, and the frames before it.
  async windows(sound) {
    const parts = [];
    for (const [start, samples] of cutRecording(sound, this.rate)) {
      if (isSilent(samples)) continue;
      const frames = await this.features(samples);
      const arrays = {
        inputs: { data: frames.data, shape: [1, ...frames.shape] },
        lengths: { data: [frames.shape[0]], shape: [1] },
      };
      const { outputs } = await this.graphs.whole.run(arrays);
      const [steps, width] = [Number(outputs.frames.data[0]), this.names.length];
      const posteriors = { data: outputs.log_probs.data.subarray(0, steps * width), shape: [steps, width] };
      parts.push({ posteriors, frames: frames.shape[0], before: start / this.hop });
    }
    return parts;
  }

  // The frames of samples; fewer than a window are padded with zeros.
  async features(samples) {
    const window = Math.floor(this.rate / 40);
    const enough = samples.length < window ? joined([samples, new Float32Array(window - samples.length)]) : samples;
    return (await this.graphs.features.run({ samples: { data: enough, shape: [enough.length] } })).outputs.frames;
  }

  async streamed(sound) {
    const blocks = this.blocks(FILE);
    const found = [...(await blocks.feed(sound)), ...(await blocks.finish())];
    return { posteriors: stacked(found, this.names.length), frames: blocks.frames, before: 0 };
  }

  blocks(size) {
    const { shape } = this.reader;
    const width = shape.reduce((a, b) => a * b, 1);
    const { factor, context, rate } = this;
    return new Blocks({ features: (samples) => this.features(samples), step: this.graphs.step, factor, context, rate, width, shape }, size);
  }

  // A stream of samples at a rate, for a microphone.
  stream(rate) { return new RecognizeStream(this, rate); }

  read(parts, beam) {
    const readings = parts.map(({ posteriors, frames, before }) => {
      const found = beam > 1 ? prefixSearch(posteriors, beam) : bestPath(posteriors);
      const places = wordsBetween(found.labels, this.separator, this.symbols);
      const sure = confidences(places, found, posteriors, this.separator);
      const moment = (step) => Math.round(10 * (before + Math.min(step * this.factor, frames))) / 1000;
      const words = places.map((part, number) => ({
        text: this.joinedLabels(part.map((place) => found.labels[place])),
        start: moment(found.spans[part[0]][0]),
        end: moment(found.spans[part.at(-1)][1]),
        confidence: sure[number],
      }));
      return { text: this.text(found.labels), score: found.score, words };
    });
    return {
      text: readings.map((one) => one.text).filter((text) => text).join(this.glue),
      score: readings.reduce((sum, one) => sum + one.score, 0),
      words: readings.flatMap((one) => one.words),
    };
  }

  joinedLabels(labels) { return labels.map((label) => this.names[label]).join(this.symbols ? " " : ""); }

  text(labels) { return splitBlanks(this.joinedLabels(labels)).join(" ").normalize("NFC"); }
}

// Hears a recording as it comes: `feed` gives the text so far, `finish` the whole answer.
class RecognizeStream {
  constructor(model, rate) {
    this.model = model;
    this.resampler = rate === model.rate ? null : new Resampler(rate, model.rate);
    this.blocks = model.blocks();
    this.found = [];
  }

  async feed(samples) {
    this.found.push(...(await this.blocks.feed(this.resampler ? this.resampler.feed(samples) : samples)));
    return this.model.text(bestPath(this.posteriors).labels);
  }

  async finish(beam = 1) {
    if (this.resampler) this.found.push(...(await this.blocks.feed(this.resampler.finish())));
    this.found.push(...(await this.blocks.finish()));
    const { posteriors } = this;
    return this.model.read(posteriors.shape[0] ? [{ posteriors, frames: this.blocks.frames, before: 0 }] : [], beam);
  }

  get posteriors() { return stacked(this.found, this.model.names.length); }
}

function stacked(parts, width) {
  const data = joined(parts.map((part) => part.data));
  return { data, shape: [data.length / width, width] };
}
