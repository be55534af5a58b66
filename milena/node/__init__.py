"""What brokers and controllers share: serving, links, the metadata image."""
