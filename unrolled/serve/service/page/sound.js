// The microphone: a recording as a wav file, which every service reads.

export async function startRecording() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const recorder = new MediaRecorder(stream);
  const parts = [];
  recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
  recorder.start();
  return async () => {
    const ended = new Promise((done) => recorder.addEventListener("stop", done, { once: true }));
    recorder.stop();
    await ended;
    stream.getTracks().forEach((track) => track.stop());
    return wav(await new Blob(parts).arrayBuffer());
  };
}

async function wav(encoded) {
  const context = new OfflineAudioContext(1, 1, 16000); // decodes to this rate
  const sound = await context.decodeAudioData(encoded);
  const samples = sound.getChannelData(0);
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF"); view.setUint32(4, 36 + 2 * samples.length, true); text(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
  view.setUint32(24, sound.sampleRate, true); view.setUint32(28, 2 * sound.sampleRate, true);
  view.setUint16(32, 2, true); view.setUint16(34, 16, true);
  text(36, "data"); view.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, i) => view.setInt16(44 + 2 * i, Math.round(32767 * Math.max(-1, Math.min(1, value))), true));
  return new File([view.buffer], "recording.wav", { type: "audio/wav" });
}
