"""Frontend for ONNX files."""
