// Runs beside the sound of a microphone, and sends its samples to the page, some thousand at a time.

const PIECE = 2048;

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.held = [];
    this.port.onmessage = () => {
      this.send();
      this.port.postMessage("end");
    };
  }

  process([input]) {
    if (input.length) this.held.push(...input[0]); // one channel was asked for
    if (this.held.length >= PIECE) this.send();
    return true;
  }

  send() {
    if (this.held.length) this.port.postMessage(Float32Array.from(this.held));
    this.held = [];
  }
}

registerProcessor("recorder", Recorder);
