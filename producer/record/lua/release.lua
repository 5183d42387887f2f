-- Gives an unfinished shard back, at once claimable.  ARGV: job, shard, epoch  ->  1, or 0 when the lease was lost
local job, shard, epoch = ARGV[1], ARGV[2], ARGV[3]
if not holds(job, shard, epoch) then
    return 0
end
reopen(job, shard)
return 1
