"""What all commands share: options, errors, output."""
