// Package kube queries Kubernetes API servers about the identities of their clusters. It requests the issuer and keys
// of tokens, reviews of tokens (TokenReview), and reviews of the right to list Secrets (SubjectAccessReview). Each
// cluster's own API server is queried.
//
// Owns: the pace of its requests, the keys of other clusters, the results of token reviews.
// Reads: the API servers; files of saved keys.
// Never: caches the results of access reviews; sends a token to a host that is not an API server.
package kube

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/apiserver"
)

// Rate limits of one Access's SubjectAccessReviews.
const (
	accessRate    = 50 // per second
	accessBurst   = 100
	accountRate   = 1 // per second, for one service account
	accountBurst  = 4
	accountsKnown = 4096 // accounts whose rate is remembered
)

// Access asks one API server whether service accounts may list Secrets. Safe for concurrent use.
type Access struct {
	api  *apiserver.Client
	pace *paces
}

// NewAccess returns the Access of an API server, which must not be nil. It sends no request.
func NewAccess(api *apiserver.Client) *Access {
	return &Access{api: api, pace: newPaces(rate.NewLimiter(accessRate, accessBurst), accountRate, accountBurst, accountsKnown)}
}

// review has those fields of a SubjectAccessReview (k8s.io/api/authorization/v1) that this package uses.
type review struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Spec       reviewSpec   `json:"spec"`
	Status     reviewStatus `json:"status"`
}

type reviewSpec struct {
	User       string     `json:"user"`
	Groups     []string   `json:"groups"`
	Attributes attributes `json:"resourceAttributes"`
}

type attributes struct {
	Namespace string `json:"namespace"`
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`
}

type reviewStatus struct {
	Allowed         bool   `json:"allowed"`
	Denied          bool   `json:"denied"`
	Reason          string `json:"reason"`
	EvaluationError string `json:"evaluationError"`
}

// MayListSecrets reports whether a service account may list the Secrets of its own namespace. It requests a review like
// istiod (istio: pilot/pkg/credentials/kube/secrets.go, Authorize). The review has the groups that the API server gives
// the account's tokens. MayListSecrets waits until the rate limits permit the request. It fails at once if the wait
// would exceed the deadline of ctx. Other errors: ctx ends, the request fails, or an authoriser of the API server
// failed and the right was neither granted nor denied. With an error the right is unknown, and the result allowed is
// false. The result reason tells why the right is refused. It is empty if the right is granted, and with an error.
func (a *Access) MayListSecrets(ctx context.Context, namespace, account string) (allowed bool, reason string, err error) {
	if err := a.pace.wait(ctx, namespace+"/"+account); err != nil {
		return false, "", fmt.Errorf("subject access review: not sent before the rate limits allow it: %w", err)
	}
	asked := review{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview", Spec: reviewSpec{
		User:       "system:serviceaccount:" + namespace + ":" + account,
		Groups:     []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		Attributes: attributes{Namespace: namespace, Verb: "list", Resource: "secrets"},
	}}
	var answer review
	if err := a.api.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked, &answer); err != nil {
		return false, "", fmt.Errorf("subject access review: %w", err)
	}
	s := answer.Status
	switch {
	case s.Allowed && !s.Denied:
		return true, "", nil
	case s.EvaluationError != "" && !s.Denied:
		// An authoriser of the API server failed. It might have granted the right.
		return false, "", fmt.Errorf("subject access review: %.300s", s.EvaluationError)
	case s.Reason != "":
		reason = ": " + s.Reason
	}
	return false, fmt.Sprintf("the API server does not let the account list Secrets of namespace %s%.300s", namespace, reason), nil
}
