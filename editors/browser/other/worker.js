// An extension that may do everything in pages that ours may, and tries to learn what ours knows.
