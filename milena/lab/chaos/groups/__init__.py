"""Consumer groups over the raw protocol: a workload of members, commits and deletions, and its end."""
