"""Recurrences over time: `scan` and its engines."""
