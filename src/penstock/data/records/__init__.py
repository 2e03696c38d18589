"""Records for fine-tuning: prompts, conversations and tables, and which of their tokens count."""
