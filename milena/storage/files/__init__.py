"""The files of a log directory: segments' indexes, checkpoints, snapshots, names."""
