package inspect

import (
	"encoding/json"
	"slices"
	"strings"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Standing is the state of a Secret for one proxy, as /debug/explain states it. It never has the private key.
type Standing struct {
	Object string `json:"object,omitempty"` // the object from which the Secret is made
	// State is one of: "sent" (the proxy has it, or it is in flight), "on its way", "waiting for the authoriser",
	// "being opened" (decrypted), "refused" (by the proxy), "withheld", "not asked for" (the proxy does not request
	// it).
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // reason of the state
	// Named are the servers of Gateways, in the proxy's listeners, that name the Secret.
	Named []string `json:"named_by,omitempty"`
	// Wanted are the node IDs of the proxies that request the Secret, in the namespace of the explained proxy.
	Wanted []string `json:"wanted_by"`
}

// isSecret reports whether the name of a resource has the form of a name of a Secret or ConfigMap
// (istio: pilot/pkg/model/credentials/resource.go).
func isSecret(name string) bool {
	return strings.HasPrefix(name, model.SecretCredential) || strings.HasPrefix(name, model.GatewaySecretCredential) ||
		strings.HasPrefix(name, model.ConfigMapCredential)
}

// namedBy returns the objects whose filter chains at a proxy name a Secret, each once, in the order of the listeners.
// It returns nil if the Specs of the proxy are not available now.
func namedBy(st Stream, secret string) (objects []string) {
	set, specs, err := st.Explain()
	if err != nil {
		return nil
	}
	for _, r := range set.Types[xds.Listener].Sorted() {
		for _, spec := range specs(xds.Listener, r.Name) {
			chain, is := spec.(interface {
				Naming(secret string) []model.Place
			})
			if !is {
				continue
			}
			for _, at := range chain.Naming(secret) {
				if !slices.Contains(objects, at.String()) {
					objects = append(objects, at.String())
				}
			}
		}
	}
	return objects
}

// SecretsOf returns the names of the Secrets that a cluster or a listener makes Envoy request over ADS. Names may
// repeat, and have no order. Without such Secrets the result is nil. The error is that of JSON.
func SecretsOf(r *xds.Resource) (names []string, err error) {
	raw, err := JSON(r)
	if err != nil {
		return nil, err
	}
	var all any
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			from, _ := v["sds_config"].(map[string]any)
			if name, is := v["name"].(string); is && from["ads"] != nil {
				names = append(names, name)
			}
			for _, one := range v {
				walk(one)
			}
		}
	}
	walk(all)
	return names, nil
}
