"""Inputs of drop predictors: feature catalog, record and trace schemas, datasets on disk, splits."""
