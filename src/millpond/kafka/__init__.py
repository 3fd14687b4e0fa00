"""What Kafka's source and sink share: addresses, topics asked about and made, and how errors are told."""
