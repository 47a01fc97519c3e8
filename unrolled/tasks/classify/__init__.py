"""The task `classify`."""
