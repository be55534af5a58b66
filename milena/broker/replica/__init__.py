"""The replicas of this broker (Kafka's ReplicaManager and Partition): leadership, ISR, followers' progress, fetch
sessions, quotas."""
