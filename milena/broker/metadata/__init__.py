"""The metadata as this broker sees and shows it."""
