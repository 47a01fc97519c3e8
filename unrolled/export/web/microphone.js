// The microphone: pieces of samples while it is open.

// Opens it; `onpiece` gets samples and their rate, which is that of the sound card.
export async function openMicrophone(onpiece) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new Error("There is no microphone here: browsers give one to https pages and to this machine alone.");
  }
  const context = new AudioContext();
  await context.audioWorklet.addModule(new URL("./microphone-worklet.js", import.meta.url)); // before any sound comes
  const recorder = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0 });
  recorder.port.onmessage = (event) => onpiece(event.data, context.sampleRate);
  try {
    const plain = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const stream = await navigator.mediaDevices.getUserMedia({ audio: plain });
    context.createMediaStreamSource(stream).connect(recorder);
    return { rate: context.sampleRate, close: () => closed(context, recorder, stream) };
  } catch (error) {
    await context.close();
    const reasons = { NotAllowedError: "it was not allowed", NotFoundError: "there is none", NotReadableError: "another program may use it" };
    throw new Error(`The microphone cannot be used: ${reasons[error.name] ?? error.message}.`);
  }
}

// Closes it after the last samples have come.
async function closed(context, recorder, stream) {
  const last = new Promise((resolve) => {
    const { onmessage } = recorder.port;
    recorder.port.onmessage = (event) => (event.data === "end" ? resolve() : onmessage(event));
  });
  recorder.port.postMessage("end");
  await last;
  for (const track of stream.getTracks()) track.stop();
  await context.close();
}
