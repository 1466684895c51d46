"""What vLLM and SGLang have in common: ranks, weights as they are loaded, encoders beside the
language model, and what each of them refuses before it loads anything."""
