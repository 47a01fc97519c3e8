"""Watching a run: callbacks of one's own, and trackers."""

from unrolled.training.watching.callback import Callback, WatchedRun, Watchers
from unrolled.training.watching.trackers import trackers

__all__ = ["Callback", "WatchedRun", "Watchers", "trackers"]
