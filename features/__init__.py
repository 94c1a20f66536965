"""What a drop predictor may see: feature catalog, record and trace schemas, datasets on disk, splits."""
