"""Recordings, pictures and their transcripts."""
