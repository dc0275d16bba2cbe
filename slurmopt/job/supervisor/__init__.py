"""What the batch shell calls before and after the ranks: the verdict on an attempt and what follows."""
