-- SPDX-License-Identifier: MIT
-- Picket's fence for Redis: docs/fencing-sql.md says how to use it.
--
-- A fence is a hash with the fields token, value, shadow and shadowed; its key is
-- picket:fence:{RESOURCE}. KEYS[1] is that key, ARGV[1] what to do, ARGV[2] the token:
--     claim TOKEN              before you read
--     check TOKEN              whether it is still the one that claimed last
--     set TOKEN VALUE          claims, and keeps the value in the fence
--     get TOKEN                claims, and gives the value
--     put TOKEN VALUE ...      claims, and does SET KEYS[2] VALUE ... with a key of yours
-- It answers with the fence's token (get: and the value). One above yours means: it is in
-- shadow mode, and would have refused. Errors are STALE, UNCLAIMED and BADARG; the first
-- two end in token=FENCE, and nothing was done.
--
-- Lua counts in doubles, which are exact up to 2^53 - 1: so no token is higher.
local key, verb, token = KEYS[1], ARGV[1], ARGV[2] or ''
local fence = redis.call('HGET', key, 'token') or '0'
local shadow = redis.call('HGET', key, 'shadow') == '1'

if not token:find('^[1-9]%d*$') or tonumber(token) > 9007199254740991 then
    return redis.error_reply('BADARG a token is a number from 1 to 2^53 - 1')
end
local mine, highest = tonumber(token), tonumber(fence)

if mine < highest and not shadow then
    return redis.error_reply('STALE a higher token has been here before: token=' .. fence)
end
if verb == 'check' then
    if mine > highest and not shadow then
        return redis.error_reply('UNCLAIMED claim the resource first: token=' .. fence)
    end
    return fence
end

local write = ({
    claim = function() end,
    get = function() end,
    set = function() redis.call('HSET', key, 'value', ARGV[3]) end,
    put = function() redis.call('SET', KEYS[2], unpack(ARGV, 3)) end,
})[verb]
if not write then
    return redis.error_reply('BADARG claim, check, set, get or put')
end
write()
if mine < highest then
    redis.call('HINCRBY', key, 'shadowed', 1)
elseif mine > highest then
    redis.call('HSET', key, 'token', token)
    fence = token
end
return verb == 'get' and redis.call('HMGET', key, 'token', 'value') or fence
