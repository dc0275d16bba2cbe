"""Access to files and folders that other users may have a hand in: owners, locks, descriptors, temporary names."""
