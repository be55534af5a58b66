"""Record batches: headers, records, compression, and the records of Kafka's internal topics."""
