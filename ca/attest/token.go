package attest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/metadata"
)

// algorithms lists the accepted signature algorithms. All are asymmetric. An attacker can make a token with the
// algorithm "none" without a key, and an HMAC with the public key.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// maxTokenID is the maximum length of the stored part of a token's ID (the claim jti), in bytes.
const maxTokenID = 128

// TokenIssuer is an issuer of tokens with its public keys. Issuers of different clusters may have the same name, as
// they do by Kubernetes' default.
type TokenIssuer struct {
	Name    string // the claim iss; empty: the name is fetched with the keys (KeysConfig.Ask)
	Cluster string // cluster of the callers that have the issuer's tokens; empty: any cluster
	Keys    *Keys  // must not be nil
}

// Reviewer verifies tokens without the issuers' keys, by Kubernetes' TokenReview.
type Reviewer interface {
	// Review returns the account and Pod of a token that is valid for one of the audiences. Errors match ErrDenied if
	// the token is refused, and ErrUnavailable if the reviewer cannot answer at present. Safe for concurrent use.
	Review(ctx context.Context, token string, audiences []string) (Reviewed, error)
}

// Reviewed is a Reviewer's result.
type Reviewed struct {
	Namespace, ServiceAccount string
	Pod                       string // Pod that the token is bound to; empty: unbound
	Cluster                   string // the reviewer's cluster
}

// TokensConfig configures the accepted tokens. TrustDomain, and Issuers or Reviewer, are required. A zero value of the
// other fields means the default.
type TokensConfig struct {
	TrustDomain spiffeid.TrustDomain
	Issuers     []TokenIssuer
	// Cluster is the cluster of calls without the gRPC metadata clusterid, in which Istio's agents name their cluster.
	// The token of a call is verified with the keys of issuers of the call's cluster, and of issuers without a cluster.
	// If Cluster is empty, a call without clusterid may belong to any cluster.
	Cluster string
	// Remote returns the issuer of a cluster that Issuers and Cluster do not name, and false if the cluster is unknown.
	// The issuer's name is fetched with its keys, so TokenIssuer.Name is ignored. Remote is called at each verification
	// of a token of that cluster, also concurrently. If Remote is nil, there are no other clusters.
	Remote    func(cluster string) (TokenIssuer, bool)
	Audiences []string         // accepted audiences; a token must have one of them; default: istio-ca
	Leeway    time.Duration    // tolerated difference of clocks; default: 10 min; negative: none
	MaxBytes  int              // longest accepted token, in bytes; default: 8 KiB (Kubernetes' tokens have 1 to 2 KiB)
	CacheSize int              // number of cached tokens; default: 16384
	Reviewer  Reviewer         // used for calls of Cluster if the issuer is unknown or its keys are unavailable; may be nil
	Now       func() time.Time // nil: time.Now
}

// Tokens authenticates callers by service account tokens, from metadata "authorization: Bearer ...". It verifies a
// token by the issuers' keys. If the token's issuer is unknown or its keys are unavailable, the Reviewer may verify the
// token (TokensConfig.Reviewer). Safe for concurrent use.
type Tokens struct {
	cfg     TokensConfig
	issuers map[string][]TokenIssuer // by name
	found   []TokenIssuer            // issuers whose names are fetched with their keys
	// clusters contains the clusters of TokensConfig.Issuers, TokensConfig.Cluster and the empty name.
	// TokensConfig.Remote is not called for them.
	clusters map[string]bool
	// known caches verified tokens until they expire or their key is removed. Istio's agents send the same token for
	// hours.
	known *lru.Cache[shown, verified]
}

type verified struct {
	caller Caller
	remote bool // verified by the keys of a remote cluster, which may be removed
	until  time.Time
	keys   *Keys
	keyID  string
	print  [sha256.Size]byte
}

// claims are the claims of Kubernetes' bound service account tokens.
type claims struct {
	jwt.Claims
	Kubernetes *kubernetesClaims `json:"kubernetes.io,omitempty"`
}

type kubernetesClaims struct {
	Namespace      string  `json:"namespace"`
	ServiceAccount object  `json:"serviceaccount"`
	Pod            *object `json:"pod,omitempty"`
}

type object struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// NewTokens validates the configuration and returns an authenticator. It fetches no keys. The error names the first
// setting that is missing, invalid or repeated. Audiences must not be modified afterwards.
func NewTokens(cfg TokensConfig) (*Tokens, error) {
	if cfg.TrustDomain.IsZero() {
		return nil, errors.New("tokens: no trust domain")
	}
	if len(cfg.Issuers) == 0 && cfg.Reviewer == nil {
		return nil, errors.New("tokens: no issuer")
	}
	t := &Tokens{issuers: make(map[string][]TokenIssuer), clusters: map[string]bool{"": true, cfg.Cluster: true}}
	for _, i := range cfg.Issuers {
		t.clusters[i.Cluster] = true
		switch {
		case i.Keys == nil || i.Name == "" && i.Keys.cfg.Ask == nil:
			return nil, fmt.Errorf("tokens: issuer %q needs a name and keys", i.Name)
		case i.Name == "" && slices.ContainsFunc(t.found, func(o TokenIssuer) bool { return o.Cluster == i.Cluster }):
			return nil, fmt.Errorf("tokens: cluster %q has two issuers without a name", i.Cluster)
		case i.Name == "":
			t.found = append(t.found, i)
			continue
		case slices.ContainsFunc(t.issuers[i.Name], func(o TokenIssuer) bool { return o.Cluster == i.Cluster }):
			return nil, fmt.Errorf("tokens: issuer %q of cluster %q is configured twice", i.Name, i.Cluster)
		}
		t.issuers[i.Name] = append(t.issuers[i.Name], i)
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = []string{"istio-ca"}
	}
	if slices.Contains(cfg.Audiences, "") {
		return nil, errors.New("tokens: an audience is empty")
	}
	cfg.Leeway = max(cmp.Or(cfg.Leeway, 10*time.Minute), 0)
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 8 << 10
	}
	if cfg.CacheSize == 0 {
		cfg.CacheSize = 16384
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	t.cfg = cfg
	var err error
	t.known, err = lru.New[shown, verified](cfg.CacheSize)
	if err != nil {
		return nil, fmt.Errorf("tokens: cache of %d: %w", cfg.CacheSize, err)
	}
	return t, nil
}

// Authenticate implements Authenticator. Errors: ErrNone if the call has no bearer token, ErrMalformed if the token
// is empty or the call has two different tokens, and the errors of Verify.
func (t *Tokens) Authenticate(ctx context.Context) (Caller, error) {
	token, err := bearer(ctx)
	if err != nil {
		return Caller{}, err
	}
	return t.Verify(ctx, token)
}

func bearer(ctx context.Context) (string, error) {
	var token string
	found := false
	for _, v := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		scheme, rest, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			continue
		}
		if rest = strings.TrimSpace(rest); found && rest != token {
			return "", fmt.Errorf("%w: two bearer tokens", ErrMalformed)
		}
		token, found = rest, true
	}
	switch {
	case !found:
		return "", fmt.Errorf("%w: no bearer token", ErrNone)
	case token == "":
		return "", fmt.Errorf("%w: the bearer token is empty", ErrMalformed)
	}
	return token, nil
}

// Verify returns the caller named by a token. ctx has the call's incoming gRPC metadata, in which clusterid names the
// cluster of the call. Verify may wait for a fetch of keys or for the Reviewer. A token verified by an issuer's keys is
// cached at most until its expiry plus Leeway, or until its key is removed. Errors match ErrDenied if the token is
// refused, and ErrUnavailable if it cannot be verified at present.
func (t *Tokens) Verify(ctx context.Context, token string) (Caller, error) {
	if len(token) > t.cfg.MaxBytes {
		return Caller{}, fmt.Errorf("%w: token of %d bytes, at most %d", ErrTooLarge, len(token), t.cfg.MaxBytes)
	}
	cluster, err := t.clusterOf(ctx)
	if err != nil {
		return Caller{}, err
	}
	sum := sha256.Sum256([]byte(token))
	if who, known := t.remembered(sum, cluster); known {
		return who, nil
	}
	v, err := t.verify(ctx, token, cluster)
	switch {
	case err == nil:
		if v.caller.Pod == "" && v.caller.Token == "" {
			v.caller.Token = digest(sum)
		}
		t.remember(sum, cluster, v)
	case t.cfg.Reviewer != nil && cluster == t.cfg.Cluster && (errors.Is(err, ErrIssuer) || errors.Is(err, ErrUnavailable)):
		caller, err := t.review(ctx, token)
		if err == nil && caller.Pod == "" && caller.Token == "" {
			caller.Token = digest(sum)
		}
		return caller, err
	}
	return v.caller, err
}

// digest returns 128 bits of a token's hash in hexadecimal. They identify a token that has no ID.
func digest(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:16]) }

// review verifies a token by the Reviewer. Results are not cached here, since the Reviewer caches them. Tokens with
// invalid claims (checkClaims) are refused without a review. The caller is made from the token's claims. It is returned
// only if the Reviewer accepts the token and names the same account and Pod.
func (t *Tokens) review(ctx context.Context, token string) (Caller, error) {
	_, c, err := parse(token)
	if err == nil {
		err = t.checkClaims(c)
	}
	if err != nil {
		return Caller{}, err
	}
	r, err := t.cfg.Reviewer.Review(ctx, token, t.cfg.Audiences)
	if err != nil {
		return Caller{}, fmt.Errorf("token review: %w", err)
	}
	who, err := t.claimed(c, r.Cluster)
	if err == nil && (who.Namespace != r.Namespace || who.ServiceAccount != r.ServiceAccount || who.Pod != r.Pod) {
		return Caller{}, fmt.Errorf("%w: the token's claims differ from its review", ErrIdentity)
	}
	return who, err
}

// claimed returns the caller of a token with verified claims.
func (t *Tokens) claimed(c claims, cluster string) (Caller, error) {
	pod, uid := "", ""
	if c.Kubernetes.Pod != nil {
		pod, uid = c.Kubernetes.Pod.Name, c.Kubernetes.Pod.UID
	}
	who, err := t.caller(c.Kubernetes.Namespace, c.Kubernetes.ServiceAccount.Name, pod)
	if err != nil {
		return Caller{}, err
	}
	who.NotAfter, who.Cluster, who.PodUID = c.Expiry.Time(), cluster, uid
	who.AccountUID, who.Issued = c.Kubernetes.ServiceAccount.UID, issuedAt(c)
	if pod == "" {
		who.Token = c.ID[:min(len(c.ID), maxTokenID)]
	}
	return who, nil
}

func (t *Tokens) caller(namespace, account, pod string) (Caller, error) {
	id, err := workload(t.cfg.TrustDomain, namespace, account)
	if err != nil {
		return Caller{}, err
	}
	return Caller{ID: id, Namespace: namespace, ServiceAccount: account, By: ByToken, Pod: pod}, nil
}

// verify verifies a token with the issuers' keys. Cheap checks come first. Until the signature has been verified,
// errors quote no claim except the issuer.
func (t *Tokens) verify(ctx context.Context, token, cluster string) (verified, error) {
	parsed, c, err := parse(token)
	if err != nil {
		return verified{}, err
	}
	v, cluster, err := t.signed(ctx, parsed, c.Issuer, cluster)
	if err != nil {
		return verified{}, err
	}
	if err := t.checkClaims(c); err != nil {
		return verified{}, err
	}
	v.until = c.Expiry.Time().Add(t.cfg.Leeway)
	v.caller, err = t.claimed(c, cluster)
	return v, err
}

// issuedAt returns the time when a token was issued. The result is zero if the token does not state this time.
func issuedAt(c claims) time.Time {
	if c.IssuedAt == nil {
		return time.Time{}
	}
	return c.IssuedAt.Time()
}

// parse decodes a token without verifying it. The library's errors are not shown, since they may quote the token.
func parse(token string) (*jwt.JSONWebToken, claims, error) {
	var c claims
	parsed, err := jwt.ParseSigned(token, algorithms)
	var algorithm *jose.ErrUnexpectedSignatureAlgorithm
	switch {
	case errors.As(err, &algorithm):
		return nil, c, fmt.Errorf("%w %.20q is not accepted", ErrAlgorithm, string(algorithm.Got))
	case err != nil || len(parsed.Headers) != 1:
		return nil, c, fmt.Errorf("%w: not a signed JWT in compact form", ErrMalformed)
	}
	if err := parsed.UnsafeClaimsWithoutVerification(&c); err != nil {
		return nil, c, fmt.Errorf("%w: the token's claims cannot be read", ErrMalformed)
	}
	return parsed, c, nil
}

// checkSignature verifies the signature with each key until one matches, and stores the fingerprint of the matching key
// in v. It returns ErrSignature if no key matches.
func checkSignature(parsed *jwt.JSONWebToken, algorithm string, keys []publicKey, v *verified) error {
	for _, k := range keys {
		if k.algorithm != "" && k.algorithm != algorithm {
			continue
		}
		if parsed.Claims(k.key) == nil {
			v.print = k.print
			return nil
		}
	}
	return ErrSignature
}

func (t *Tokens) checkClaims(c claims) error {
	if c.Expiry == nil {
		return fmt.Errorf("%w: the token has no expiry", ErrMalformed)
	}
	now := t.cfg.Now()
	err := c.ValidateWithLeeway(jwt.Expected{AnyAudience: t.cfg.Audiences, Time: now}, t.cfg.Leeway)
	at := func(n *jwt.NumericDate) string { return n.Time().UTC().Format(time.RFC3339) }
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return fmt.Errorf("%w: token ended at %s", ErrExpired, at(c.Expiry))
	case errors.Is(err, jwt.ErrNotValidYet):
		return fmt.Errorf("%w: token begins at %s", ErrNotYet, at(c.NotBefore))
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return fmt.Errorf("%w: token was issued at %s, in the future", ErrNotYet, at(c.IssuedAt))
	case errors.Is(err, jwt.ErrInvalidAudience):
		return fmt.Errorf("%w: token is for %.200q, accepted are %q", ErrAudience, []string(c.Audience), t.cfg.Audiences)
	case err != nil:
		return fmt.Errorf("%w: claims", ErrMalformed)
	}
	k := c.Kubernetes
	if k == nil {
		return fmt.Errorf("%w: the token has no claim kubernetes.io (old tokens from Secrets are not accepted)", ErrIdentity)
	}
	if want := "system:serviceaccount:" + k.Namespace + ":" + k.ServiceAccount.Name; c.Subject != want {
		return fmt.Errorf("%w: the token's subject %.200q is not the service account of its claim kubernetes.io", ErrIdentity, c.Subject)
	}
	return nil
}
