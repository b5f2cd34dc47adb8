// Package kube asks Kubernetes API servers about the identities of their clusters: who issues their tokens, with which keys, and whether a
// service account may list Secrets. Each cluster's own API server is asked, the config cluster's among them.
//
// Owns: the pace at which it asks, the keys of other clusters.  Reads: the API servers.  Never: decides for how long an answer is valid; sends a
// token anywhere else.
package kube

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/apiserver"
)

// The pace of SubjectAccessReviews of one process. Mostly they are asked for once in minutes for each service account of gateways, but also
// when a binding changes, which its writer may do as often as they like.
const (
	accessRate    = 50 // a second
	accessBurst   = 100
	accountRate   = 1 // of one service account, a second
	accountBurst  = 4
	accountsKnown = 4096 // whose pace is remembered
)

// Access asks whether service accounts may list Secrets. Safe for concurrent use.
type Access struct {
	api  *apiserver.Client
	pace *paces
}

// NewAccess asks nothing yet.
func NewAccess(api *apiserver.Client) *Access {
	return &Access{api: api, pace: newPaces(rate.NewLimiter(accessRate, accessBurst), accountRate, accountBurst, accountsKnown)}
}

// review is a SubjectAccessReview, as far as it is used (k8s.io/api/authorization/v1).
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

// MayListSecrets says whether a service account may list the Secrets of its own namespace, as istiod asks it (istio:
// pilot/pkg/credentials/kube/secrets.go, Authorize), with the groups that the API server gives its tokens (kubernetes:
// apiserver/pkg/authentication/serviceaccount/util.go, MakeGroupNames); and if not, why, for people. An error: the API server does not
// say, and nothing follows from that. It waits for its turn while many are asked for, until the context ends.
func (a *Access) MayListSecrets(ctx context.Context, namespace, account string) (allowed bool, why string, err error) {
	if err := a.pace.wait(ctx, namespace+"/"+account); err != nil {
		return false, "", fmt.Errorf("subject access review: too many are asked for: %w", err)
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
		// An authorizer of the API server could not say: it may know of a right that the others do not.
		return false, "", fmt.Errorf("subject access review: %.300s", s.EvaluationError)
	case s.Reason != "":
		why = ": " + s.Reason
	}
	return false, fmt.Sprintf("the API server does not let it list Secrets of namespace %s%.300s", namespace, why), nil
}
