-- Prolongs a lease.  ARGV: job, shard, epoch, lease (ms)  ->  1, or 0 when it is lost: the shard is somebody else's now
local job, shard, epoch, lease = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if not holds(job, shard, epoch) then
    return 0
end
go_on_when_full()
redis.call("ZADD", key.leases, now_ms() + lease, lease_name(job, shard))
return 1
