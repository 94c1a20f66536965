"""Where a sharing rule matters: policies with all their settings under families of conditions, judged by cost."""
