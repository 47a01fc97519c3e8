"""Search over tokens, one model step at a time: beam search, sampling, and scores of known outputs."""
