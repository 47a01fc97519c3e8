"""Spectrograms are Kaldi's: the same frames, windows, bands and logarithms."""

from __future__ import annotations

import kaldi_native_fbank
import numpy as np
import pytest
import torch

from tests.tolerances import assert_close
from unrolled.data.signals import log_mel
from unrolled.data.signals.log_mel import LogMel


@pytest.mark.parametrize(("rate", "bands"), [(16_000, 80), (8000, 40), (11_025, 23), (44_100, 64)])
@pytest.mark.parametrize("seconds", [0.025, 0.5, 1.237])
def test_log_mel_frames(rate: int, bands: int, seconds: float) -> None:
    random = np.random.default_rng(rate)
    size = int(seconds * rate)
    samples = (0.1 * random.standard_normal(size) + 0.3 * np.sin(np.arange(size) * 0.05)).astype(np.float32)
    options = kaldi_native_fbank.FbankOptions()
    frames = options.frame_opts
    frames.samp_freq, frames.dither, frames.preemph_coeff = rate, 0.0, 0.0
    frames.remove_dc_offset, frames.window_type = False, "hann"
    options.mel_opts.num_bins, options.mel_opts.low_freq = bands, 20.0
    fbank = kaldi_native_fbank.OnlineFbank(options)
    fbank.accept_waveform(rate, samples.tolist())
    fbank.input_finished()
    mel = LogMel(rate, bands)
    ours = mel(samples)
    expected = np.stack([fbank.get_frame(i) for i in range(fbank.num_frames_ready)])
    assert len(ours) == mel.frames(size) == len(expected)
    assert_close(torch.from_numpy(ours), expected)


def test_a_long_recording_is_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    whole = LogMel(8000, 20, deltas=1)(samples)
    monkeypatch.setattr(log_mel, "AT_ONCE", 7)
    assert_close(torch.from_numpy(LogMel(8000, 20, deltas=1)(samples)), whole)


def test_silence_is_the_floor() -> None:
    assert np.allclose(LogMel(8000, 20)(np.zeros(8000, dtype=np.float32)), np.log(np.float32(1.1920929e-07)))
