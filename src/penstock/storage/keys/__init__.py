"""The key index of a log: files of key hashes beside closed segments, and lookups of records by key."""
