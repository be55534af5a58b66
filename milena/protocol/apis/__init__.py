"""What the messages of each served API have, declared for type checkers. ``protocol.schemas.declarations`` makes it."""
