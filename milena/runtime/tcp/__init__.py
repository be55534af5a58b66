"""The network port on real sockets: addresses, connections, listeners."""
