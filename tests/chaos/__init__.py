"""Sixty seconds of faults on real processes, and the verdict on what clients saw meanwhile."""
