"""One module per API key that the controller's listeners serve."""
