"""What Kafka's source and sink share: addresses, administration of topics, options, Avro, and translation of errors."""
