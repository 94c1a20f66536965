"""MLflow: tracked runs, and models in its registry."""
