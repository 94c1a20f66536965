"""Datasets on disk: the schema, the manifest, and one folder per run."""
