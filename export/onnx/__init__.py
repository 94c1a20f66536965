"""The ONNX target: one graph of integers around a tree ensemble."""
