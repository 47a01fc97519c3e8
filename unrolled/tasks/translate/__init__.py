"""The task `translate`."""
