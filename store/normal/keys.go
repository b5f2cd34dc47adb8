package normal

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// KeySource is where the keys of a RequestAuthentication's rule are found. Comparable.
type KeySource struct {
	URI     string        // of the key set; empty: the issuer tells it
	Issuer  string        // by OIDC discovery; empty where there is a URI
	Timeout time.Duration // that its rule states for one request; 0: none
}

// How the parts of a source stand in its name.
const (
	issuerPrefix = "issuer "
	withinInfix  = " within "
)

// String is the source as users read it, and the name of its object: a URI, or "issuer" and the issuer, with the timeout.
func (s KeySource) String() string {
	out := cmp.Or(s.URI, issuerPrefix+s.Issuer)
	if s.Timeout != 0 {
		out += withinInfix + s.Timeout.String()
	}
	return out
}

// ParseKeySource is the inverse of String. URIs have no spaces. An error: the name is none of String's.
func ParseKeySource(name string) (s KeySource, err error) {
	where, within, timed := strings.Cut(name, withinInfix)
	if timed {
		if s.Timeout, err = time.ParseDuration(within); err != nil {
			return s, err
		}
	}
	if issuer, is := strings.CutPrefix(where, issuerPrefix); is {
		s.Issuer = issuer
	} else {
		s.URI = where
	}
	return s, nil
}

// KeysID names the object that says which keys are at a source, for rules of one namespace: how many sources a namespace may have is bounded. Its
// origin is no source of configuration: it comes from the leader alone (store/jwks).
func KeysID(namespace string, s KeySource) object.ID {
	return object.ID{Origin: origin.New("", origin.JWKS), Group: object.OwnGroup, Kind: "KeySet", Namespace: namespace, Name: s.String()}
}

// Keys is what is known of a source.
type Keys struct {
	Set    string `json:"set,omitempty"`    // a JSON Web Key Set; empty: none was fetched
	Reason string `json:"reason,omitempty"` // why no newer one could be fetched; empty: it could
}

// NewKeys makes the object of a source. Errors are those of encoding.
func NewKeys(id object.ID, set, reason string) (*object.Object, error) {
	raw, err := json.Marshal(Keys{set, reason})
	if err != nil {
		return nil, err
	}
	return &object.Object{ID: id, Version: "v1", JSON: raw, Location: "JWKS"}, nil
}

// ParseKeys reads what NewKeys made; of what it did not make nothing is known.
func ParseKeys(obj *object.Object) (k Keys) {
	if json.Unmarshal(obj.JSON, &k) != nil {
		return Keys{}
	}
	return k
}

// leastRSA is how many bits an RSA key has at least.
const leastRSA = 1024

// usable says why Envoy takes no key set with a key in it, be there good ones beside; nil: it takes it.
func usable(key jose.JSONWebKey) error {
	var algorithms []string
	switch of := key.Key.(type) {
	case *rsa.PublicKey:
		if algorithms = []string{"RS", "PS"}; of.N.BitLen() < leastRSA {
			return fmt.Errorf("%d bits are too few", of.N.BitLen())
		}
	case *ecdsa.PublicKey:
		algorithms = []string{"ES"}
	case ed25519.PublicKey:
		algorithms = []string{"EdDSA"}
	case []byte:
		algorithms = []string{"HS"}
	default:
		return fmt.Errorf("a key of type %T", key.Key)
	}
	if key.Algorithm != "" && !slices.ContainsFunc(algorithms, func(prefix string) bool { return strings.HasPrefix(key.Algorithm, prefix) }) {
		return fmt.Errorf("its algorithm is %.40q, want %s...", key.Algorithm, strings.Join(algorithms, "... or "))
	}
	return nil
}

// ParseKeySet reads a JSON Web Key Set (RFC 7517). compact is the public part of those keys alone that can verify a token, without their
// certificates; private says that one of them came with its private part. An error says why no key can verify anything.
func ParseKeySet(raw []byte) (compact []byte, private bool, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(raw, &set) != nil || len(set.Keys) == 0 {
		return nil, false, errors.New(`is no JSON Web Key Set, or one without keys: want {"keys": [...]}`)
	}
	good := jose.JSONWebKeySet{}
	var wrong error
	for i, one := range set.Keys {
		var key jose.JSONWebKey
		if e := json.Unmarshal(one, &key); e != nil {
			wrong = fmt.Errorf("key %d: %w", i, e)
			continue
		}
		if _, symmetric := key.Key.([]byte); !symmetric && !key.IsPublic() {
			private, key = true, key.Public()
		}
		if e := usable(key); e != nil {
			wrong = fmt.Errorf("key %d: %w", i, e)
			continue
		}
		good.Keys = append(good.Keys, jose.JSONWebKey{Key: key.Key, KeyID: key.KeyID, Algorithm: key.Algorithm, Use: key.Use})
	}
	if len(good.Keys) == 0 {
		return nil, false, fmt.Errorf("has no key that can be used: %w", wrong)
	}
	compact, err = json.Marshal(good)
	return compact, private, err
}
