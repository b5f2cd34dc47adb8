package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// tokenSeconds is for how long a token is asked for: the shortest time that API servers give.
const tokenSeconds = 600

// Token returns a token by which the API server knows the user of the kubeconfig. A kubeconfig with a client certificate has none: the API server is asked
// for a token of a service account of the control plane's namespace then, which only those get who may create one. Errors name the account.
func (c *Cluster) Token(ctx context.Context, account string) (string, error) {
	token, err := c.own(ctx)
	if err != nil || token != "" {
		return token, err
	}
	seconds := int64(tokenSeconds)
	asked := authenticationv1.TokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}, Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	var given authenticationv1.TokenRequest
	path := "/api/v1/namespaces/" + url.PathEscape(c.Namespace) + "/serviceaccounts/" + url.PathEscape(account) + "/token"
	if err := c.API.Do(ctx, http.MethodPost, path, asked, &given); err != nil {
		return "", fmt.Errorf("%s has no token but a client certificate, and one of service account %s/%s cannot be had: %w", c, c.Namespace, account, err)
	}
	return given.Status.Token, nil
}

// own is the token that requests to the API server have; empty: they have none.
func (c *Cluster) own(ctx context.Context) (token string, err error) {
	seen := func(r *http.Request) (*http.Response, error) {
		token, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return nil, errSeen
	}
	transport, err := rest.HTTPWrappersForConfig(c.config, roundTripper(seen))
	if err != nil {
		return "", fmt.Errorf("%s: %w", c, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.API.Address(), nil)
	if err != nil {
		return "", err
	}
	answer, err := transport.RoundTrip(request)
	if answer != nil {
		_ = answer.Body.Close()
	}
	if !errors.Is(err, errSeen) {
		return "", fmt.Errorf("%s: %w", c, err)
	}
	return token, nil
}

// errSeen ends a request that is not sent.
var errSeen = errors.New("not sent")

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
