"""Embedded data sets, built from Python itself or a dependency."""
