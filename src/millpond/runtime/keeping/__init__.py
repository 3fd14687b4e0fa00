"""What an app keeps in its state directory, and what an edited file does to it."""
