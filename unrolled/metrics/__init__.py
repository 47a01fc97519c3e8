"""How good answers are: counts and scores of them."""
