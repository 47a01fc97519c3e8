"""Steps of Transformer blocks: attention to keys at fixed places, and sums with their layer norm."""
