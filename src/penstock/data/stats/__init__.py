"""What a corpus looks like: how long its documents are, and what each policy makes of them."""
