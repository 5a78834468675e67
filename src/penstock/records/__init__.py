"""Record batches (magic 2): reading, checking, building and compressing them in memory, without input or output."""
