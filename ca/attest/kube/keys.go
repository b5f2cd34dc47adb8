package kube

import (
	"context"
	"encoding/json"
	"fmt"

	"navarch.io/navarch/store/apiserver"
)

// maxKeys bounds each answer about keys, in bytes.
const maxKeys = 1 << 20

// Keys asks an API server for the name of its token issuer and its public keys, both at the paths of its own that Kubernetes has for them
// (https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery), and nowhere else:
// the address of keys that the answer names (jwks_uri) may be any, and is not asked. It is what attest.KeysConfig.Ask takes.
func Keys(api *apiserver.Client) func(context.Context) (issuer string, jwks []byte, err error) {
	return func(ctx context.Context) (string, []byte, error) {
		text, err := api.Get(ctx, "/.well-known/openid-configuration", maxKeys)
		if err != nil {
			return "", nil, err
		}
		var about struct {
			Issuer string `json:"issuer"`
		}
		if err := json.Unmarshal(text, &about); err != nil {
			return "", nil, fmt.Errorf("openid-configuration is not JSON: %w", err)
		}
		keys, err := api.Get(ctx, "/openid/v1/jwks", maxKeys)
		return about.Issuer, keys, err
	}
}
