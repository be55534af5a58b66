"""The state a follower needs to begin in the middle of a log: leader epochs and producers, from the tier."""
