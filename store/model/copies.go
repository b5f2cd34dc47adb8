package model

// These constants bound the requests that a proxy sends for one request of a client. Istio and Envoy have no such
// bounds. The rest of the mirrors and retries that an http rule or MeshConfig states is left out.
const (
	MostMirrors = 8
	MostRetries = 32
)
