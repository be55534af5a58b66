"""Where segments are stored: a folder or an fsspec file system, with caches."""
