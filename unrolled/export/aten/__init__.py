"""Rules that write torch's operators (ATen) as ONNX nodes, by kind of operator."""
