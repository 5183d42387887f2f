"""How long to draft, how much to verify, where drafts are from, how rows take turns: rules that compose. No vLLM."""
