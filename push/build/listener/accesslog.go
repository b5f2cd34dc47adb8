package listener

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"

	"navarch.io/navarch/push/build/telemetry"
)

// accessLog returns the access logs for a direction and protocol of traffic (side). If the proxy computes metrics by an
// access log, that access log is the last element.
func (c Common) accessLog(side telemetry.Side) []*accesslogv3.AccessLog {
	logs := c.Telemetry.AccessLogs(c.mesh(), c.Caps)
	if counts := c.Telemetry.Counts(c.mesh(), c.Caps, side); counts != nil {
		logs = append(logs, counts)
	}
	return logs
}

// unmatchedLog returns the access logs of connections that no filter chain matches.
func (c Common) unmatchedLog() []*accesslogv3.AccessLog {
	return c.Telemetry.UnmatchedLogs(c.mesh(), c.Caps)
}
