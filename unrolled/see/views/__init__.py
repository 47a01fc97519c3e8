"""Traces and runs as plain data for the page."""
