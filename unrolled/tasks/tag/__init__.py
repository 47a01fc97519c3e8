"""The task `tag`."""
