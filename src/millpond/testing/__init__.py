"""What users and we test with: contract suites, SQL-file tests, a settable clock."""
