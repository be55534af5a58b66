"""One replica and its state: leader state, in-sync replicas, follower progress."""
