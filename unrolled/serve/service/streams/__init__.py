"""Streams: a model that is fed over a WebSocket and keeps its state there."""
