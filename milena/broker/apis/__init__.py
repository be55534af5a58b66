"""The broker's APIs, one module per API key."""
