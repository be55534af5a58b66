"""Remote segments, and which of their offsets are served."""
