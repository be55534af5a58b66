"""Remote segments and which of their offsets count."""
