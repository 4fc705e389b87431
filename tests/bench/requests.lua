-- What wrk sends: the requests of `plan` in turn; every state that came back goes out once, first.
local formatted, states, turn = {}, {}, 0

local function format(request, body)
  return wrk.format("POST", request.path, request.headers, body or request.body)
end

function init()
  for number, request in ipairs(plan.requests) do
    formatted[number] = format(request)
  end
end

function request()
  if plan.next and #states > 0 then
    local state = table.remove(states)
    return format(plan.next, (plan.next.body:gsub("STATE", state)))
  end
  turn = turn % #formatted + 1
  return formatted[turn]
end

if plan.next then
  function response(status, headers, body)
    local state = body:match('"requestState":"([^"]+)"')
    if state then
      states[#states + 1] = state
    end
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'FIGURES {"requests":%d,"duration_us":%d,"failures":%d,"p50_us":%.1f,"p99_us":%.1f}\n',
    summary.requests, summary.duration,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
