"""Serving connections: framing, dispatch, fairness, the control page."""
