"""The task `recognize`."""
