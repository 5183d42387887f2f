"""The two-batch engine: what runs inside vLLM's processes so that drafting one batch hides behind verifying the other.

Source of the method: "MineDraft: A Framework for Batch Parallel Speculative Decoding", arXiv 2603.18016.
"""
