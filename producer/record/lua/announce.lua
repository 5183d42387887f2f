-- A worker's heartbeat; also forgets workers whose heartbeat ran out.  ARGV: worker, what it says of itself, lease (ms)
local worker, card, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
go_on_when_full()
local now = now_ms()
redis.call("SET", key.worker:format(worker), card, "PX", lease)
redis.call("ZADD", key.workers, now + lease, worker)
redis.call("ZREMRANGEBYSCORE", key.workers, "-inf", now)
return 1
