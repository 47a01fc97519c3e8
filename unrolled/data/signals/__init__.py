"""Features of recordings, pictures and series."""
