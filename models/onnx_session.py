"""ONNX graphs in onnxruntime, whose package is an extra."""

from __future__ import annotations

from typing import Any

from foretail.core.errors import ForetailError


def session_of(content: bytes, what: str = "model", again: str = "export") -> Any:
    """Return a graph in onnxruntime; ForetailError, which names `what` it is, when it refuses the file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # threads would add in an order of their own
    options.log_severity_level = 4  # what goes wrong is raised as well
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a dozen exception types without a common base of its own
        reason = " ".join(str(error).split())[:160]
        raise ForetailError(f"onnxruntime refuses the {what} ({reason}): {again} it again") from None
