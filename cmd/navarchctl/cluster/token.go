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

// tokenSeconds is the requested lifetime of a token: the shortest that API servers grant.
const tokenSeconds = 600

// Token returns a bearer token with which a process of the control plane can authenticate the caller. The result is the
// token of the kubeconfig's user. If the kubeconfig has no token (for example, only a client certificate), Token
// requests a new token from the API server. The new token is for the given service account in the control plane's
// namespace. Its requested lifetime is 10 minutes. Token returns an error if the kubeconfig's credential plugin fails,
// or if the token cannot be created.
func (c *Cluster) Token(ctx context.Context, account string) (string, error) {
	token, err := c.own(ctx)
	if err != nil || token != "" {
		return token, err
	}
	seconds := int64(tokenSeconds)
	asked := authenticationv1.TokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	var given authenticationv1.TokenRequest
	path := "/api/v1/namespaces/" + url.PathEscape(c.Namespace) + "/serviceaccounts/" + url.PathEscape(account) + "/token"
	if err := c.API.Do(ctx, http.MethodPost, path, asked, &given); err != nil {
		return "", fmt.Errorf("%s has no bearer token, and the request for a token of service account %s/%s failed: %w",
			c, c.Namespace, account, err)
	}
	return given.Status.Token, nil
}

// own returns the bearer token that requests to the API server would carry. The result is empty if the kubeconfig has
// no token. own sends no request to the API server.
func (c *Cluster) own(ctx context.Context) (token string, err error) {
	seen := func(r *http.Request) (*http.Response, error) {
		if bearer, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is { // other schemes, such as Basic, have no token
			token = bearer
		}
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

// errSeen ends a request before it is sent.
var errSeen = errors.New("not sent")

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
