"""The broker's way to the controller: registration, heartbeats, forwarded requests."""
