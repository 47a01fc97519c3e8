"""Steps of searches over tokens: their bookkeeping, the way back through their history, and drawing."""
