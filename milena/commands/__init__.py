"""The subcommands of `milena`, one module or folder each."""
