"""The controller: owner of the metadata log, of registrations, topics, configurations and elections."""
