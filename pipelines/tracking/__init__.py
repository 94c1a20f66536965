"""Models and datasets as runs in MLflow name them."""
