"""Logs on local disks."""
