"""The tree ensemble: its meaning, its cells and boxes, and the front ends that read trained models."""
