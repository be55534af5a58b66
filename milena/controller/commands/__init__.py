"""Changes of the metadata: one module per subject. Each function turns a request into metadata records."""
