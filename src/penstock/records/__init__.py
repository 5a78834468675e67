"""Record batches (magic 2): read, check, walk, build and compress them. No input or output happens here."""
