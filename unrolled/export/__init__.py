"""From a trained model to ONNX graphs that run without torch."""
