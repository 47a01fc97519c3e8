"""The task `forecast`."""
