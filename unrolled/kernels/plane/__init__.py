"""LSTMs over a plane, such as a picture: `reference` loops over pixels, `sweeps` computes many pixels in one step."""
