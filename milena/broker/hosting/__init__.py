"""The partitions that this broker hosts: applies metadata changes to logs, directories and roles."""
