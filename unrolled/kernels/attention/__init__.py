"""Attending decoders over time: `attention_scan` and its engines."""
