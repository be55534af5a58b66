"""What the scripts share: options, connection, errors, files of partitions."""
