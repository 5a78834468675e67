"""Record batches (magic 2): reading, checking, building and compressing them. No input or output happens here."""
