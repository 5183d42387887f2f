"""`worker verify`: a job's answers beside what plain decoding says."""
