-- Notes what a worker computes with, and what it did, for jobs that it has rows of; those that are gone stay gone.
-- ARGV: worker, (job, note)...
go_on_when_full()
for at = 2, #ARGV, 2 do
    if redis.call("EXISTS", key.job:format(ARGV[at])) == 1 then
        redis.pcall("HSET", key.engines:format(ARGV[at]), ARGV[1], ARGV[at + 1]) -- a damaged key harms nothing else
    end
end
return 1
