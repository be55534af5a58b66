"""What a seeded cluster is put through: clients, administrators, faults."""
