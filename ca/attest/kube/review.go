package kube

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/remote"
)

// Bounds of TokenReviews. While a rate is exceeded, only tokens with a stored positive result are accepted.
const (
	reviewRate   = 50 // per second, in total
	reviewBurst  = 100
	sourceRate   = 5 // per second, for one source (an IPv4 address or an IPv6 /64)
	sourceBurst  = 20
	sourcesKnown = 4096  // number of sources with a rate limit of their own
	reviewsKept  = 16384 // number of stored positive results
	refusalsKept = 4096  // number of stored refusals

	reviewStands   = 5 * time.Minute  // age of a positive result after which a token is reviewed again
	refusalStands  = 30 * time.Second // age of a refusal after which a token is reviewed again
	reviewPatience = 5 * time.Second  // timeout of one request
)

// Reviews lets an API server verify tokens (attest.Reviewer). Safe for concurrent use.
type Reviews struct {
	api      *apiserver.Client
	cluster  string
	all      *rate.Limiter
	sources  *paces
	good     *lru.Cache[[sha256.Size]byte, reviewedAt]
	refused  *lru.Cache[[sha256.Size]byte, refusedAt] // a separate cache, so that refused tokens do not displace accepted tokens
	now      func() time.Time
	patience time.Duration
}

type reviewedAt struct {
	answer attest.Reviewed
	at     time.Time
}

type refusedAt struct {
	err error
	at  time.Time
}

// NewReviews returns the Reviews of a cluster's API server, which must not be nil. It sends no request. All results
// have the given cluster in Reviewed.Cluster.
func NewReviews(api *apiserver.Client, cluster string) *Reviews {
	good, err := lru.New[[sha256.Size]byte, reviewedAt](reviewsKept)
	if err != nil {
		panic(err) // the size is a constant
	}
	refused, err := lru.New[[sha256.Size]byte, refusedAt](refusalsKept)
	if err != nil {
		panic(err)
	}
	all := rate.NewLimiter(reviewRate, reviewBurst)
	return &Reviews{api: api, cluster: cluster, all: all,
		sources: newPaces(all, sourceRate, sourceBurst, sourcesKnown), good: good, refused: refused,
		now: time.Now, patience: reviewPatience}
}

// tokenReview is the used part of a TokenReview (k8s.io/api/authentication/v1).
type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token     string   `json:"token"`
		Audiences []string `json:"audiences"`
	} `json:"spec"`
	Status struct {
		Authenticated bool     `json:"authenticated"`
		Audiences     []string `json:"audiences"`
		Error         string   `json:"error"`
		User          struct {
			Username string              `json:"username"`
			Extra    map[string][]string `json:"extra"`
		} `json:"user"`
	} `json:"status"`
}

// Review implements attest.Reviewer. A positive result is reused for 5 min, a refusal for 30 s. An older positive
// result is still returned if the request fails, has no response within 5 s, or is prevented by the rate limits. So the
// caller must check the token's expiry. Results are stored by token alone, so all calls must have the same audiences.
// An error matches attest.ErrDenied if the token is refused. It also matches ErrAudience if the token is for other
// audiences, and ErrIdentity if it names no service account. An error matches attest.ErrUnavailable if there is no
// earlier positive result, and the request fails or is prevented by the rate limits.
func (r *Reviews) Review(ctx context.Context, token string, audiences []string) (attest.Reviewed, error) {
	sum := sha256.Sum256([]byte(token))
	now := r.now()
	before, known := r.good.Get(sum)
	if known && now.Sub(before.at) < reviewStands {
		return before.answer, nil
	}
	if no, is := r.refused.Get(sum); is && now.Sub(no.at) < refusalStands {
		return attest.Reviewed{}, no.err
	}
	if !r.sources.limiter(source(ctx)).AllowN(now, 1) || !r.all.AllowN(now, 1) {
		if known {
			return before.answer, nil
		}
		return attest.Reviewed{}, fmt.Errorf("%w: too many token reviews are requested", attest.ErrUnavailable)
	}
	answer, denied, err := r.ask(ctx, token, audiences)
	switch {
	case denied != nil:
		r.good.Remove(sum)
		r.refused.Add(sum, refusedAt{denied, now})
		return attest.Reviewed{}, denied
	case err != nil && known:
		return before.answer, nil
	case err != nil:
		return attest.Reviewed{}, fmt.Errorf("%w: %v", attest.ErrUnavailable, err) // err is not wrapped: its timeout is not the caller's
	}
	r.good.Add(sum, reviewedAt{answer, now})
	return answer, nil
}

// ask sends a TokenReview. The error denied means that the token was refused. The error err means that the API server
// gave no result.
func (r *Reviews) ask(ctx context.Context, token string, audiences []string) (answer attest.Reviewed, denied, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	asked := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	asked.Spec.Token, asked.Spec.Audiences = token, audiences
	var said tokenReview
	if err := r.api.Do(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", asked, &said); err != nil {
		return answer, nil, err
	}
	s := said.Status
	name := strings.Split(s.User.Username, ":")
	switch {
	case !s.Authenticated:
		return answer, fmt.Errorf("%w: the API server refused the token: %.200s", attest.ErrDenied, s.Error), nil
	case !slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(audiences, a) }):
		// An API server without support for audiences lists none (authentication.k8s.io/v1,
		// TokenReviewStatus.audiences).
		return answer, fmt.Errorf("%w: the API server does not say that the token is for %q", attest.ErrAudience, audiences), nil
	case len(name) != 4 || name[0] != "system" || name[1] != "serviceaccount":
		return answer, fmt.Errorf("%w: %.200q is no service account", attest.ErrIdentity, s.User.Username), nil
	}
	answer = attest.Reviewed{Namespace: name[2], ServiceAccount: name[3], Cluster: r.cluster}
	if pod := s.User.Extra["authentication.kubernetes.io/pod-name"]; len(pod) == 1 {
		answer.Pod = pod[0]
	}
	return answer, nil, nil
}

// source returns the network that a call comes from: an IPv4 address, or an IPv6 /64. All calls without a peer have the
// same result. All calls from peers without an IP address have another result.
func source(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return remote.Host(p.Addr).String()
}
