package inspect

import (
	"encoding/json"
	"slices"
	"strings"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Standing is the state of a Secret for one proxy, as /debug/explain shows it. It never contains the private key.
type Standing struct {
	Object string `json:"object,omitempty"` // the object from which the Secret is made
	// State is "sent" (the proxy has the Secret, or the response is in flight), "on its way" (not sent yet), "waiting
	// for the authoriser" (the proxy's right to the Secret is not known yet), "being opened" (decrypted), "refused" (by
	// the proxy), "withheld", or "not asked for" (the proxy does not request the Secret).
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // reason of the state
	// Named lists the servers of Gateways that name the Secret. Only servers in the proxy's listeners are listed.
	Named []string `json:"named_by,omitempty"`
	// Wanted lists the node IDs of all proxies that request the Secret and are in the namespace of this proxy.
	Wanted []string `json:"wanted_by"`
}

// isSecret reports whether a resource name begins like the names of Secrets or ConfigMaps (istio:
// pilot/pkg/model/credentials/resource.go).
func isSecret(name string) bool {
	return model.NamesSecret(name) || strings.HasPrefix(name, model.ConfigMapCredential)
}

// namedBy returns the objects whose filter chains name a Secret, each once, in the order of the proxy's listeners. It
// returns nil if the Specs (the inputs of the proxy's resources) are not available.
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
// repeat, and have no order. Without such Secrets the result is nil. SecretsOf fails if the function JSON fails.
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
