"""The metadata image of this broker, and the responses that are built from it."""
