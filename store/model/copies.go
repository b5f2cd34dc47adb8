package model

// These constants bound the requests that a proxy sends for one request of a client. Istio and Envoy have no such
// bounds. Mirrors and retries of an http rule or MeshConfig beyond these numbers are left out.
const (
	MostMirrors = 8
	MostRetries = 32
)
