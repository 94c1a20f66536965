"""Proofs that an exported text decides as its model does, and the certificate that records them."""
