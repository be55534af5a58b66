"""The common parts of all commands: options, errors, output."""
