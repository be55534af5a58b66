"""The registry of APIs, and codecs for message schemas."""
