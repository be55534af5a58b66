"""Record batches and what is in them: records, compression, Kafka's own record kinds."""
