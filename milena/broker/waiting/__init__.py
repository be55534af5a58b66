"""Operations that wait: deadlines, the purgatory, and long work in slices."""
