package kube

import (
	"context"
	"encoding/json"
	"fmt"

	"navarch.io/navarch/store/apiserver"
)

// maxKeys bounds each response about keys, in bytes.
const maxKeys = 1 << 20

// Keys returns a function that fetches the issuer name and public keys of an API server's tokens, for
// attest.KeysConfig.Ask. The function uses only the paths that Kubernetes documents under
// https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery.
// The URL of keys in the response (jwks_uri) is ignored, since it may lead anywhere. The results are not validated. A
// missing issuer is "". Errors: those of apiserver.Client.Get, also for a response above 1 MiB, and an
// openid-configuration that is not JSON.
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
