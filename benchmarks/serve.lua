-- Requests of a file, a line for each body, in turns; the last line of output is JSON. Run by serve.py in wrk.
local bodies, at = {}, 0

function init(args)
  for line in io.lines(args[1]) do
    bodies[#bodies + 1] = line
  end
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
end

function request()
  at = at % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[at])
end

function done(summary, latency, requests)
  local errors = summary.errors
  local bad = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('{"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p95_ms": %.3f, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, bad))
end
