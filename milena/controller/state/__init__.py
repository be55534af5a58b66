"""What the controller keeps in memory beside the image."""
