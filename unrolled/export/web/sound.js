// Recordings: samples of one channel at one rate.

const PCM = 1;
const FLOAT = 3;
const EXTENSIBLE = 0xfffe;

// The samples of a file, from −1 to 1, and their rate. Wav files are read here, sample by sample; others by the browser,
// which brings them to `rate`.
export async function readSound(content, rate) {
  const wav = readWav(content);
  if (wav) return wav;
  let decoded;
  try {
    decoded = await new OfflineAudioContext(1, 1, rate).decodeAudioData(content.slice(0));
  } catch (error) {
    throw new Error(`The file is not a recording that this browser can read (${error.message || error.name}). Use a wav file.`);
  }
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, number) => decoded.getChannelData(number));
  return { samples: mean(channels), rate: decoded.sampleRate };
}

// The samples of a wav file of whole numbers or floats; null if it is something else.
export function readWav(content) {
  const view = new DataView(content);
  const name = (at) => (at + 4 <= view.byteLength ? String.fromCharCode(...new Uint8Array(content, at, 4)) : "");
  if (name(0) !== "RIFF" || name(8) !== "WAVE") return null;
  let format = null;
  for (let at = 12; at + 8 <= view.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    if (name(at) === "fmt " && at + 24 <= view.byteLength) format = readFormat(view, at + 8, size);
    if (name(at) === "data") return format && samplesOf(view, at + 8, Math.min(size, view.byteLength - at - 8), format);
    at += 8 + size + (size % 2);
  }
  return null;
}

function readFormat(view, at, size) {
  let kind = view.getUint16(at, true);
  if (kind === EXTENSIBLE && size >= 26) kind = view.getUint16(at + 24, true);
  const bits = view.getUint16(at + 14, true);
  const read = { [PCM]: WHOLE, [FLOAT]: FLOATS }[kind]?.[bits];
  const channels = view.getUint16(at + 2, true);
  return read && channels ? { read, channels, rate: view.getUint32(at + 4, true), bytes: bits / 8 } : null;
}

const WHOLE = {
  8: (view, at) => (view.getUint8(at) - 128) / 128,
  16: (view, at) => view.getInt16(at, true) / 32768,
  24: (view, at) => (view.getUint16(at, true) + 65536 * view.getInt8(at + 2)) / 8388608,
  32: (view, at) => view.getInt32(at, true) / 2147483648,
};
const FLOATS = { 32: (view, at) => view.getFloat32(at, true), 64: (view, at) => view.getFloat64(at, true) };

function samplesOf(view, start, size, { read, channels, rate, bytes }) {
  const count = Math.floor(size / (bytes * channels));
  const parts = Array.from({ length: channels }, (_, channel) =>
    Float32Array.from({ length: count }, (__, place) => read(view, start + (place * channels + channel) * bytes)));
  return { samples: mean(parts), rate };
}

function mean(channels) {
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, place) => channels.reduce((sum, one) => sum + one[place], 0) / channels.length);
}

// Samples at another rate.
export function resampled(samples, rate, wanted) {
  if (rate === wanted) return samples;
  const resampler = new Resampler(rate, wanted);
  return joined([resampler.feed(samples), resampler.finish()]);
}

export function joined(parts) {
  const found = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    found.set(part, at);
    at += part.length;
  }
  return found;
}

const ZEROS = 32; // of the sinc on each side
const ROLL_OFF = 0.94; // of half the lower rate: what passes
const BETA = 10; // of Kaiser's window: about 100 dB

// A filter that changes the rate of samples that come in pieces: a sinc under a Kaiser window, one row of weights for
// each phase of the outputs between inputs. Sample n of the output lies at n · from / to of the input.
export class Resampler {
  constructor(from, to) {
    const divisor = gcd(from, to);
    [this.up, this.down] = [to / divisor, from / divisor];
    const cut = Math.min(1, to / from) * ROLL_OFF; // of half the input's rate
    this.half = Math.ceil(ZEROS / cut);
    this.phases = Array.from({ length: this.up }, (_, phase) => weights(phase / this.up, this.half, cut));
    this.held = new Float32Array(this.half - 1); // zeros before the first sample
    this.first = 1 - this.half; // the place of the first sample that is held
    this.made = 0;
    this.count = 0;
  }

  feed(samples) {
    this.count += samples.length;
    return this.run(joined([this.held, samples]), Infinity);
  }

  // The rest, at the end of the recording.
  finish() { return this.run(joined([this.held, new Float32Array(this.half)]), Math.round((this.count * this.up) / this.down)); }

  run(held, most) {
    const found = [];
    while (this.made < most) {
      const whole = Math.floor((this.made * this.down) / this.up);
      const start = whole - this.half + 1 - this.first;
      const row = this.phases[(this.made * this.down) % this.up];
      if (start + row.length > held.length) break;
      let sum = 0;
      for (let tap = 0; tap < row.length; tap += 1) sum += held[start + tap] * row[tap];
      found.push(sum);
      this.made += 1;
    }
    const next = Math.floor((this.made * this.down) / this.up) - this.half + 1 - this.first;
    const used = Math.max(0, Math.min(next, held.length));
    this.held = held.slice(used);
    this.first += used;
    return Float32Array.from(found);
  }
}

// The weights of 2 · half inputs around a place that is `shift` after one of them; they add up to 1.
function weights(shift, half, cut) {
  const row = Float64Array.from({ length: 2 * half }, (_, tap) => {
    const x = tap - half + 1 - shift;
    const edge = x / half;
    if (Math.abs(edge) >= 1) return 0;
    return sinc(cut * x) * bessel(BETA * Math.sqrt(1 - edge * edge));
  });
  const total = row.reduce((a, b) => a + b, 0);
  return row.map((weight) => weight / total);
}

function sinc(x) { return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x); }

// The modified Bessel function I₀, by its series.
function bessel(x) {
  let [sum, term] = [1, 1];
  for (let k = 1; term > 1e-12 * sum; k += 1) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

function gcd(a, b) { return b ? gcd(b, a % b) : a; }
