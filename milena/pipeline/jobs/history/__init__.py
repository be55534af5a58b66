"""Judges histories of client operations that are too large for one process. What is judged, and by which rules, is
handed in: the pipeline knows lines, parts and verdicts."""
