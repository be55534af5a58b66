"""All logs of a broker: directories, periodic work, moves between directories."""
