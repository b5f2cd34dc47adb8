package listener

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"

	"navarch.io/navarch/push/build/telemetry"
)

// accessLog is the logs of requests and connections of one side, and what counts them where an access log does.
func (c Common) accessLog(side telemetry.Side) []*accesslogv3.AccessLog {
	logs := c.Telemetry.AccessLogs(c.mesh(), c.Caps)
	if counts := c.Telemetry.Counts(c.mesh(), c.Caps, side); counts != nil {
		logs = append(logs, counts)
	}
	return logs
}

// unmatchedLog is those of the connections that no filter chain took.
func (c Common) unmatchedLog() []*accesslogv3.AccessLog {
	return c.Telemetry.UnmatchedLogs(c.mesh(), c.Caps)
}
