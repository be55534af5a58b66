"""For tests of users' projects: the pytest plugin, a cluster of local processes, scenarios on processes."""
