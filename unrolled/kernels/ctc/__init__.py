"""The CTC loss and its alignment."""
