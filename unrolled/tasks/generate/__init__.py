"""The task `generate`."""
