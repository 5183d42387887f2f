"""Where vLLM finds the two-batch engine's classes, in its own notation. Imports nothing: vLLM's flags name them."""

EXECUTOR = "worker.minedraft.executor.MineDraftExecutor"
SCHEDULER = "worker.minedraft.scheduler.TwoBatchScheduler"
VERIFIER = "worker.minedraft.verifier.VerifierWorker"
DRAFTER = "worker.minedraft.drafter.DrafterWorker"
