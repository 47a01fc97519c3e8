"""Files to examples."""
