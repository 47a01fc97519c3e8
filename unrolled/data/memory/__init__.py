"""Data in memory: DataFrames, lists, iterators and arrays in the place of files."""
