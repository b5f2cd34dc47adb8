package inspect

import "strings"

// Standing is where a Secret stands for one proxy, in the words of /debug/explain: never its private key.
type Standing struct {
	Object string `json:"object,omitempty"` // that it is made of
	// State: "sent" (the proxy holds it, or will when what is in flight has arrived), "on its way", "waiting for the authoriser", "being opened",
	// "refused" by the proxy, "withheld", "not asked for".
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
	// Wanted are the proxies of its namespace that ask for it.
	Wanted []string `json:"wanted_by"`
}

// isSecret says whether a resource has the name of a Secret (istio: pilot/pkg/model/credentials/resource.go).
func isSecret(name string) bool {
	return strings.HasPrefix(name, "kubernetes://") || strings.HasPrefix(name, "kubernetes-gateway://")
}
