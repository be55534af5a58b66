"""The controller: the metadata log, broker registrations, topics, configurations and leader elections."""

if __name__ != "milena.controller":  # by the link at the root of the repository: every module would exist twice
    raise ImportError("import milena.controller, not controller")
