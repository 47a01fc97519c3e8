"""The task `caption`."""
