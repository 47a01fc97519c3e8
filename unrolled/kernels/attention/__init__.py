"""Decoders with attention over time: `attention_scan` and its engines."""
