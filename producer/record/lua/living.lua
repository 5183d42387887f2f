-- What the living workers say of themselves.  ->  {card, ...}
local cards = {}
for _, worker in ipairs(redis.call("ZRANGEBYSCORE", key.workers, now_ms(), "+inf")) do
    local card = redis.call("GET", key.worker:format(worker))
    if card then
        cards[#cards + 1] = card
    end
end
return cards
