"""Systems of the literature that touch buffers or demand: what their authors print, and what is measured here."""
