"""Applies metadata changes to the partitions that this broker hosts: logs, directories, leadership."""
