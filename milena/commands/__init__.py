"""The subcommands of `milena`: one module or folder for each."""
