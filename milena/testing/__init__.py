"""For tests of users' projects: the pytest plugin, a cluster of processes, a container, scenarios on processes."""
