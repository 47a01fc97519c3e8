"""Sequences of numbers, their time stamps and series ids."""
