"""Scores of greedy captions in training, and the exposure gap."""

from __future__ import annotations

from collections.abc import Sequence

from unrolled.data.batching.ragged import Ragged
from unrolled.model import Model
from unrolled.tasks.caption.assets import CaptionAssets, view_arrays
from unrolled.tasks.caption.batches import PictureCaption
from unrolled.tasks.caption.scores import caption_rates, plain_numbers
from unrolled.tasks.shared.free_run import FreeRun, Written, samples
from unrolled.tasks.shared.side import with_targets
from unrolled.training import Evaluation

AT_ONCE = 64  # pictures in a batch when there are no gradients


def exposure(model: Model, captions: Sequence[PictureCaption]) -> Evaluation:
    """Scores of greedy captions of pictures, each with its first caption, and the exposure gap; a few are shown."""
    assets: CaptionAssets = model.assets
    run = FreeRun(assets.target, forbid_unknown=True)  # as `eval --beam 1` writes

    def work(index: int) -> Written:
        part = captions[index * AT_ONCE : (index + 1) * AT_ONCE]
        ids = [one.ids for one in part]
        batch = with_targets(view_arrays([one.example.view for one in part]), assets.target, Ragged.of(ids))
        return run.written(model.network.eval(), batch.to(model.device), ids, assets.most_tokens)

    run.add(-(-len(captions) // AT_ONCE), work)
    outputs, pictures = run.texts, [one.example for one in captions]
    shown = samples([one.captions[0] for one in pictures], outputs, [one.name for one in pictures])
    return Evaluation({**plain_numbers(caption_rates(model, outputs, pictures)), **run.rates()}, shown)
