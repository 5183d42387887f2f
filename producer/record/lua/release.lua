-- Gives an unfinished shard back, at once claimable.  ARGV: job, shard, epoch, "lost" when its engine died with it
--   ->  1, or 0 when the lease was lost
local job, shard, epoch = ARGV[1], ARGV[2], ARGV[3]
if not holds(job, shard, epoch) then
    return 0
end
go_on_when_full()
if ARGV[4] == "lost" then
    attempt_lost(job, shard)
else
    reopen(job, shard)
end
return 1
