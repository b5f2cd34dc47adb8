package model

import (
	"strconv"
	"strings"
)

// These constants bound the requests that a proxy sends for one request of a client. Istio and Envoy have no such
// bounds. Mirrors and retries of an http rule or MeshConfig beyond these numbers are left out.
const (
	MostMirrors = 8
	MostRetries = 32
)

// ExceedsRetries reports whether a header of requests permits more than MostRetries retries, or an unknown number of
// them. Envoy reads the number from x-envoy-max-retries, which takes precedence over the route's retry policy
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter#x-envoy-max-retries).
func ExceedsRetries(header, value string) bool {
	if !strings.EqualFold(header, "x-envoy-max-retries") {
		return false
	}
	n, err := strconv.Atoi(value)
	return err != nil || n > MostRetries
}
