"""What the group coordinator and the transaction coordinator share: the partitions of their topic that this broker
leads, the logs of these, and loading from them (Kafka's coordinator-common)."""
