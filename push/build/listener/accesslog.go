package listener

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
)

// accessLog is the logs of requests and connections.
func (c Common) accessLog() []*accesslogv3.AccessLog { return c.Telemetry.AccessLogs(c.mesh(), c.Caps) }

// unmatchedLog is those of the connections that no filter chain took.
func (c Common) unmatchedLog() []*accesslogv3.AccessLog {
	return c.Telemetry.UnmatchedLogs(c.mesh(), c.Caps)
}
