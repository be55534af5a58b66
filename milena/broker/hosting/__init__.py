"""Which partitions this broker hosts: metadata changes applied to logs, directories and roles."""
