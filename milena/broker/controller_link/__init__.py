"""The broker's requests to the controller: registration, heartbeats, forwarded requests."""
