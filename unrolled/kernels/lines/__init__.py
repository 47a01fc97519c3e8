"""Pictures of lines of text, changed by chance."""
