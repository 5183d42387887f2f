-- Removes a job that was never committed.  ARGV: job  ->  1, or 0 when it is no job in submission
go_on_when_full()
return discard(ARGV[1]) and 1 or 0
