"""The simulated world: virtual time, network, disks, loss of power."""
