"""All logs of a broker: directories, upkeep, moves between directories."""
