"""Tables whose rows are on a server: versions, conflicts, changes and recovery, over the contract by key."""
