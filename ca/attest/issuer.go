package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// MaxMintTTL is the longest lifetime of a token of an Issuer. The lifetime is bounded because a single token cannot be
// revoked. Only the identity in a token can be revoked. A change of the Issuer's key invalidates all its tokens.
const MaxMintTTL = 30 * 24 * time.Hour

// Issuer makes service account tokens without Kubernetes, for VMs, development and a navarchd without Kubernetes. The
// tokens have the form of Kubernetes' service account tokens. The type Tokens verifies tokens of both origins. Printing
// an Issuer does not show its key. An Issuer is safe for concurrent use if its key and its clock are.
type Issuer struct {
	name   string
	signer jose.Signer
	jwks   []byte
	now    func() time.Time
}

// NewIssuer returns an issuer with a name (claim iss) and an ECDSA key on P-256. If now is nil, the issuer uses
// time.Now. Errors: the name is empty, or the key is nil, of another kind, or cannot be encoded.
func NewIssuer(name string, key crypto.Signer, now func() time.Time) (*Issuer, error) {
	if name == "" || key == nil {
		return nil, errors.New("token issuer: name and key are needed")
	}
	public, ok := key.Public().(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, fmt.Errorf("token issuer: key of kind %T; ECDSA on P-256 is needed", key.Public())
	}
	id, _, err := keyID(public)
	if err != nil {
		return nil, fmt.Errorf("token issuer: %w", err)
	}
	opaque := jose.JSONWebKey{Key: cryptosigner.Opaque(key), KeyID: id, Algorithm: string(jose.ES256)}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: opaque}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("token issuer: %w", err)
	}
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}}}
	jwks, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("token issuer: encode keys: %w", err)
	}
	if now == nil {
		now = time.Now
	}
	return &Issuer{name: name, signer: signer, jwks: jwks, now: now}, nil
}

// Name returns the issuer's name, which is the claim iss of its tokens.
func (i *Issuer) Name() string { return i.name }

// JWKS returns the public key as a JWKS with one key, for other verifiers. The result must not be modified.
func (i *Issuer) JWKS() []byte { return i.jwks }

// Verifier returns the entry for TokensConfig.Issuers that accepts this issuer's tokens. The entry's Cluster is
// empty, so callers with such tokens may claim any cluster. Errors are those of StaticKeys.
func (i *Issuer) Verifier() (TokenIssuer, error) {
	keys, err := StaticKeys(i.jwks)
	return TokenIssuer{Name: i.name, Keys: keys}, err
}

// Format implements fmt.Formatter, so that no verb shows the key.
func (i *Issuer) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "token issuer "+i.name+" key=[sealed]")
}

// Mint makes a token for a service account, and returns the token and its expiry. The token is valid from the start of
// the current second. Its lifetime is ttl (1 s to MaxMintTTL), truncated to seconds. Errors: ttl is out of range, the
// audience is empty, a name cannot be part of a SPIFFE ID (ErrIdentity), or signing fails. Mint does not check
// Kubernetes' stricter rules for names.
func (i *Issuer) Mint(namespace, account, audience string, ttl time.Duration) (string, time.Time, error) {
	return i.MintBound(namespace, account, "", audience, ttl)
}

// MintBound does the same as Mint, and binds the token to a Pod by name, without a uid. If the Pod's name is empty, the
// token is not bound. All tokens with the same Pod name have the same Caller.Credential, also those of other namespaces
// and accounts. Errors are those of Mint; the Pod's name is not checked.
func (i *Issuer) MintBound(namespace, account, pod, audience string, ttl time.Duration) (string, time.Time, error) {
	if ttl < time.Second || ttl > MaxMintTTL {
		return "", time.Time{}, fmt.Errorf("mint token: lifetime %v is not within 1s and %v", ttl, MaxMintTTL)
	}
	if audience == "" {
		return "", time.Time{}, errors.New("mint token: no audience")
	}
	anywhere := spiffeid.RequireTrustDomainFromString("mint")
	if _, err := workload(anywhere, namespace, account); err != nil {
		return "", time.Time{}, fmt.Errorf("mint token: %w", err)
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", time.Time{}, fmt.Errorf("mint token: %w", err)
	}
	now := i.now().Truncate(time.Second)
	end := now.Add(ttl.Truncate(time.Second))
	bound := &kubernetesClaims{Namespace: namespace, ServiceAccount: object{Name: account}}
	if pod != "" {
		bound.Pod = &object{Name: pod}
	}
	token, err := jwt.Signed(i.signer).Claims(claims{
		Claims: jwt.Claims{
			Issuer: i.name, Subject: "system:serviceaccount:" + namespace + ":" + account,
			Audience: jwt.Audience{audience}, ID: fmt.Sprintf("%x", id),
			Expiry: jwt.NewNumericDate(end), NotBefore: jwt.NewNumericDate(now), IssuedAt: jwt.NewNumericDate(now),
		},
		Kubernetes: bound,
	}).Serialize()
	if err != nil {
		return "", time.Time{}, fmt.Errorf("mint token: %w", err)
	}
	return token, end, nil
}
