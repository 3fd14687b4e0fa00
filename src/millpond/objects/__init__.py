"""What the S3 source and the S3 sink share."""
