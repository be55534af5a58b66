"""What changes the metadata: one module per subject, each turns a request into records."""
