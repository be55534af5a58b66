"""Request serving: connections, dispatch to handlers, fairness among connections, the HTTP control page."""
