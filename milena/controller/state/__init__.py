"""What the controller keeps in memory in addition to the image."""
