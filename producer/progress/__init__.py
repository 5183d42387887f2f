"""How fast a job goes and when it will be done: pure computation on what Redis has been seen to hold."""
